"""Empirical: T=1, eps=1 promised; runs of `simulate` with and without the canary -> lower bound."""
import sys, math, warnings
import torch, numpy as np
warnings.simplefilter("ignore")
torch.set_num_threads(1)
from test_float_sums import dataset, loss, C
import tacit
from scipy.stats import beta
RUNS=int(sys.argv[1]); EPS=float(sys.argv[2]); DT=torch.float64 if len(sys.argv)>3 else torch.float32
graph = tacit.Topology.complete(2).mixing("metropolis")
def outs(remove):
    x=dataset(1).to(DT)
    if remove: x=torch.cat((x[:2**13-1], x[2**13:]))
    task=tacit.Task.from_loss(loss,[x,torch.zeros(len(x),1,dtype=DT)],torch.zeros(1,dtype=DT),batch_size=len(x))
    from tacit.algorithms.private_algorithm import prepare
    from tacit.simulation import Setting, Simulation
    p=tacit.Privacy(epsilon=EPS,delta=1e-6,honest=1)
    alg=prepare(tacit.PrivateSGD(lr=1.0,clip=C),p,task,graph,1)
    res=[]
    for seed in range(RUNS):
        sim=Simulation(Setting(alg,task,graph,seed+10**6*remove,"cpu","looped"))
        sim.start(); sim.step()
        total=-float(sim.state.theta[0,0])*alg.mechanism.expected
        # the curious client 1 subtracts its own noise
        from tacit.core.randomness import Philox
        own=Philox(seed+10**6*remove,1).integers("update",alg.mechanism.code.noise,1,torch.tensor([1]))
        res.append(total-float(own[0,0])/alg.mechanism.code.scale)
    return np.array(res), alg
a,alg=outs(0); b,_=outs(1)
print("with",a.mean(),"without",b.mean(),"diff",a.mean()-b.mean(),"sd",a.std(), "claimed sd", alg.mechanism.budget.noise_multiplier*C)
best=0
half=RUNS//2
for t in np.quantile(np.r_[a[:half],b[:half]],np.linspace(.05,.95,19)):
    pass
t=np.quantile(b[:half],0.998)
k=(a[half:]>t).sum(); f=(b[half:]>t).sum(); n=RUNS-half
lo=beta.ppf(0.025,k,n-k+1); hi=beta.ppf(0.975,f+1,n-f)
print("TPR>=",lo,"FPR<=",hi,"eps lower bound (95%)",math.log((lo-1e-6)/hi))
