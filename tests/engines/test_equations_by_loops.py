"""Every algorithm against its equations, as loops over clients, neighbours, edges and coordinates.

The equations are those of the papers. Random numbers come from the same keys, one client at a time.
"""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hosting import rows_of, run_apart, run_together

import tacit
from support.suited import PROMISE, made, suited
from tacit.algorithms import ALGORITHMS
from tacit.algorithms.admm import ADMM
from tacit.algorithms.algorithm import tensors_of
from tacit.algorithms.d_psgd import DPSGD
from tacit.algorithms.decor import Decor
from tacit.algorithms.defl_vp import DeFLVP
from tacit.algorithms.dsg import DSG
from tacit.algorithms.dsg_rms import DSGRMS
from tacit.algorithms.dsgt_rms import DSGTRMS
from tacit.algorithms.edsg import EDSG
from tacit.algorithms.edsg_rms import EDSGRMS
from tacit.algorithms.fedavg import FedAvg
from tacit.algorithms.mdsg import MDSG
from tacit.algorithms.pd_lms import PDLMS
from tacit.algorithms.pdmm import PDMM
from tacit.algorithms.private_sgd import PrivateSGD
from tacit.algorithms.psgt import PSGT
from tacit.algorithms.push_sum import PushSum
from tacit.algorithms.solvers import ExactSolver, GradientSolver, InnerSolver, QuadraticSolver
from tacit.algorithms.splitting import Splitting
from tacit.compression import QSGD, Identity, RandK, for_signs
from tacit.core.fixed_point import RESERVED
from tacit.core.randomness import Philox
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.privacy.matrix_step import MatrixStep
from tacit.privacy.protection import ErfVector, NormVector, TanhVector

SEED = 6
STEPS = 6
P = 5
SIZES = (6, 9, 7, 12, 8, 6, 10)
N = len(SIZES)
BATCH = 3

GRAPHS = {
    "ring": tacit.Topology.ring(N).mixing("metropolis", lazy=True),
    "random": tacit.Topology.erdos_renyi(N, 0.5, seed=1).mixing("metropolis", lazy=True),
    "directed ring": tacit.Topology.directed_ring(N).mixing("sinkhorn", seed=1),
    "random directed": tacit.Topology.random_directed(N, 0.4, seed=2).mixing("sinkhorn", seed=3),
}


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


XS = [draw(size, P, seed=k) for k, size in enumerate(SIZES)]
# One coordinate of one gradient is always zero, whose sign is +1.
XS[3][:, 2] = 0
YS = [draw(size, seed=k + 50) for k, size in enumerate(SIZES)]
START = draw(N, P, seed=99)
ZERO = torch.zeros(P, dtype=torch.float64)


@functools.cache
def squares(batch_size):
    return tacit.least_squares(XS, YS, theta0=START, batch_size=batch_size)


# --- what one client has: its data, its random numbers, its neighbours ---


@functools.cache
def loader_of(i, batch_size):
    return squares(batch_size).loader(torch.tensor([i]), SEED, "cpu")


@functools.cache
def samples(i, number, batch_size):
    """The data (x, y) that client i sees in its batch `number`."""
    if batch_size is None:
        return XS[i], YS[i]
    # Indices count the samples of all clients.
    rows = loader_of(i, batch_size).indices(number)[0] - sum(SIZES[:i])
    return XS[i][rows], YS[i][rows]


@functools.cache
def noise(tag, law, tick, i, j=None, width=P):
    """The own noise of client i, or the noise that i and j share on the edge from i to j."""
    target = None if j is None else torch.tensor([j])
    randomness = Philox(SEED, P, torch.float64)
    return randomness.rows(tag, law, tick, torch.tensor([i]), target, width).tensor()[0]


@functools.cache
def words(tag, tick, i, count):
    """Random 32-bit words of client i."""
    return Philox(SEED, P, torch.float64).words(tag, tick, torch.tensor([i]), count)[0]


@functools.cache
def integers(tag, law, tick, i):
    """Integer noise of client i, as Python's integers."""
    row = torch.zeros(1, P, dtype=torch.int32)
    Philox(SEED, P).add_integers(tag, law, tick, torch.tensor([i]), row)
    return row[0].tolist()


@functools.cache
def mask(tag, tick, i, j):
    """What the ends of an edge, i < j, add to their integers and subtract from them."""
    return Philox(SEED, P).masks(tag, tick, torch.tensor([i]), torch.tensor([j]))[0].tolist()


class Plain:
    """The clients of a graph, each with its in-neighbours."""

    def __init__(self, graph, batch_size, one_start=False, decay=0.0):
        self.one_start, self.decay = one_start, decay
        self.W = graph.weights.toarray()
        self.edges = sorted((i, j) for i, j in graph.edges.tolist())
        self.neighbours = [[j for j in range(N) if (j, i) in self.edges] for i in range(N)]
        self.batch_size = batch_size

    def start(self):
        return [START[0 if self.one_start else i] for i in range(N)]

    def gradient(self, i, w, number):
        """∇fᵢ of fᵢ(w) = ½ mean((xw − y)²) + ½ ω‖w‖², by hand."""
        x, y = samples(i, number, self.batch_size)
        return x.T @ (x @ w - y) / len(x) + self.decay * w

    def clipped_sum(self, i, w, bound, probability, tick):
        """Σ g min(1, C/‖g‖) over the samples that client i draws, each by a word of its own."""
        total = ZERO
        for k, word in enumerate(words(f"{RESERVED} sampling/0", tick, i, SIZES[i]).tolist()):
            if word < math.floor(probability * 2**32):
                g = XS[i][k] * (XS[i][k] @ w - YS[i][k])
                total = total + g * min(1.0, bound / math.sqrt(float(g @ g)))
        return total

    def mixed(self, i, rows):
        """Σⱼ wᵢⱼ xⱼ over i itself and its neighbours."""
        total = self.W[i, i] * rows[i]
        for j in self.neighbours[i]:
            total = total + self.W[i, j] * rows[j]
        return total


def rate(schedule, t):
    return schedule(t) if callable(schedule) else schedule


def moved(a, m, g):
    """m⁺ = βm + g, and the direction: m⁺, or g + βm⁺ as Nesterov."""
    m = a.momentum * m + g
    return m, g + a.momentum * m if a.nesterov else m


def with_moments(state, momentum, second=None):
    """A state with the moments that an algorithm has."""
    moments = {"momentum": momentum, "second": second}
    return state | {name: list(rows) for name, rows in moments.items() if rows is not None}


# --- gradient tracking, with noise and with masks ---


def tracking(a, plain):
    """θ⁺ = Wθ − λγ; γ⁺ = Wγ + ∇L⁺ − ∇L; then local steps; noise or masks are added to γ."""

    def disturbance(i, tick):
        if a.name == "dp-dsgt":
            return noise("zeta", a.noise, tick, i)
        total = ZERO
        if a.name == "lppa":
            for source, target in plain.edges:
                if source == i:
                    total = total + noise("delta", a.noise, tick, source, target)
                if target == i:
                    total = total - noise("delta", a.noise, tick, source, target)
        return total

    every = getattr(a, "inject", "") == "every" or getattr(a, "fresh", False)
    theta = plain.start()
    grad = [plain.gradient(i, theta[i], 0) for i in range(N)]
    gamma = [grad[i] + disturbance(i, 0) for i in range(N)]
    m = [ZERO] * N

    def state():
        rows = {"theta": list(theta), "gamma": list(gamma), "grad": list(grad)}
        return with_moments(rows, m if a.momentum else None)

    yield state()
    for t in range(STEPS):
        mixed_theta = [plain.mixed(i, theta) for i in range(N)]
        mixed_gamma = [plain.mixed(i, gamma) for i in range(N)]
        for i in range(N):
            for local in range(a.local_steps):
                m[i], direction = moved(a, m[i], gamma[i])
                theta[i] = (theta[i] if local else mixed_theta[i]) - rate(a.lr, t) * direction
                new = plain.gradient(i, theta[i], 1 + t * a.local_steps + local)
                gamma[i] = (gamma[i] if local else mixed_gamma[i]) + new - grad[i]
                grad[i] = new
            if every:
                gamma[i] = gamma[i] + disturbance(i, t + 1)
        yield state()


# --- diffusion, exact diffusion and their protection ---


def dsg(a, plain):
    """Eq. 2: ψ = w − γ∇J(w); w⁺ = Aψ. With momentum or Adam in place of ∇J."""
    w = plain.start()
    m, s = [ZERO] * N, [ZERO] * N
    adam = a.optimizer != "sgd"

    def state():
        return with_moments({"theta": w}, m if a.momentum or adam else None, s if adam else None)

    yield state()
    for t in range(STEPS):
        psi = []
        for i in range(N):
            g = plain.gradient(i, w[i], 1 + t)
            if adam:
                one, two = a.betas
                m[i], s[i] = one * m[i] + (1 - one) * g, two * s[i] + (1 - two) * g * g
                unbiased = math.sqrt(1 - two ** (t + 1)) / (1 - one ** (t + 1))
                direction = unbiased * m[i] / (s[i].sqrt() + 1e-8)
                direction = direction + (a.weight_decay - plain.decay) * w[i]
            else:
                m[i], direction = moved(a, m[i], g)
            psi.append(w[i] - rate(a.lr, t) * direction)
        w = [plain.mixed(i, psi) for i in range(N)]
        yield state()


def edsg(a, plain):
    """Eq. 3: ψ = w − γ∇J(w); φ = ψ + w − ψ⁻; w⁺ = Aφ; ψ⁻(0) = w(0)."""
    w = plain.start()
    psi_before = plain.start()
    m = [ZERO] * N

    def state():
        return with_moments({"theta": w, "psi": psi_before}, m if a.momentum else None)

    yield state()
    for t in range(STEPS):
        psi = []
        for i in range(N):
            m[i], direction = moved(a, m[i], plain.gradient(i, w[i], 1 + t))
            psi.append(w[i] - rate(a.lr, t) * direction)
        phi = [psi[i] + w[i] - psi_before[i] for i in range(N)]
        w = [plain.mixed(i, phi) for i in range(N)]
        psi_before = psi
        yield state()


def matrix(law, i, tick):
    """M of client i as P × P numbers (eq. 4; section 4.3 and eq. 22 for the structures)."""
    M = torch.zeros(P, P, dtype=torch.float64)
    for a in range(P):
        M[a, a] = law.mean + noise("M/diagonal", tacit.Gaussian(law.deviation), tick, i)[a]
    off = tacit.Gaussian(law.off_diagonal)
    if law.structure == "upper":
        for a in range(P - 1):
            M[a, a + 1] = noise("M/upper", off, tick, i)[a]
    if law.structure == "sparse":  # one entry in each row, off the diagonal
        for a in range(P):
            b = (a + 1 + int(words("M/columns", tick, i, P)[a]) % (P - 1)) % P
            assert b != a
            M[a, b] = noise("M/sparse", off, tick, i)[a]
    if law.structure == "dense":
        for a in range(P):
            for b in range(P):
                if a != b:
                    M[a, b] = noise("M/dense", off, tick, i, width=P**2)[a * P + b]
    return M


def protection(vector, w):
    """(τ/√L)‖w‖·1, τ·erf(0.1w) or τ·tanh(w) (eq. 5b and Remark 1)."""
    norm = math.sqrt(sum(float(x) ** 2 for x in w))
    of_coordinate = {
        NormVector: lambda x: vector.tau / math.sqrt(P) * norm,
        ErfVector: lambda x: vector.tau * math.erf(0.1 * x),
        TanhVector: lambda x: vector.tau * math.tanh(x),
    }[type(vector)]
    return torch.tensor([of_coordinate(float(x)) for x in w], dtype=torch.float64)


def dsg_rms(a, plain):
    """Eq. 5: ψ = w − γM∇J(w); ψᶜ = ψ + (τ/√L)‖w‖·1; w⁺ = Aψᶜ − ψᶜ + ψ."""
    w = plain.start()
    yield {"theta": w}
    for t in range(STEPS):
        psi, psi_c = [], []
        for i in range(N):
            M = matrix(a.matrix, i, t + 1)
            psi.append(w[i] - rate(a.lr, t) * M @ plain.gradient(i, w[i], 1 + t))
            psi_c.append(psi[i] + protection(a.protection, w[i]))
        w = [plain.mixed(i, psi_c) - psi_c[i] + psi[i] for i in range(N)]
        yield {"theta": w}


def edsg_rms(a, plain):
    """Eq. 6: ψ = w − γM∇J; φ = ψ + w − ψ⁻; φᶜ = φ + (τ/√L)c(n−2); w⁺ = Aφᶜ − φᶜ + φ."""
    w = plain.start()
    psi_before = plain.start()
    c = [noise("c(-1)", tacit.Gaussian(abs(a.protection.tau)), 0, i) for i in range(N)]
    yield {"theta": w, "psi": psi_before, "shift": c}
    for t in range(STEPS):
        psi, phi, phi_c = [], [], []
        for i in range(N):
            M = matrix(a.matrix, i, t + 1)
            psi.append(w[i] - rate(a.lr, t) * M @ plain.gradient(i, w[i], 1 + t))
            phi.append(psi[i] + w[i] - psi_before[i])
            phi_c.append(phi[i] + c[i])
        # Of w(n−1), for the message after the next w.
        c = [protection(a.protection, w[i]) for i in range(N)]
        w = [plain.mixed(i, phi_c) - phi_c[i] + phi[i] for i in range(N)]
        psi_before = psi
        yield {"theta": w, "psi": psi_before, "shift": c}


def dsgt_rms(a, plain):
    """Remark 2: xᶜ = x + c(x) and x⁺ = Wxᶜ − xᶜ + x for θ and γ; then θ − λMγ and γ + ∇L⁺ − ∇L."""
    theta = plain.start()
    grad = [plain.gradient(i, theta[i], 0) for i in range(N)]
    gamma = list(grad)
    yield {"theta": theta, "gamma": gamma, "grad": grad}
    for t in range(STEPS):
        theta_c = [theta[i] + protection(a.protection, theta[i]) for i in range(N)]
        gamma_c = [gamma[i] + protection(a.protection, gamma[i]) for i in range(N)]
        new_theta, new_gamma, new_grad = [], [], []
        for i in range(N):
            combined = plain.mixed(i, theta_c) - theta_c[i] + theta[i]
            new_theta.append(combined - rate(a.lr, t) * matrix(a.matrix, i, t + 1) @ gamma[i])
            new_grad.append(plain.gradient(i, new_theta[i], 1 + t))
            combined = plain.mixed(i, gamma_c) - gamma_c[i] + gamma[i]
            new_gamma.append(combined + new_grad[i] - grad[i])
        theta, gamma, grad = new_theta, new_gamma, new_grad
        yield {"theta": theta, "gamma": gamma, "grad": grad}


def pd_lms(a, plain):
    """w⁺ = A(ψ + z): DSG with noise on each ψ."""
    w = plain.start()
    yield {"theta": w}
    for t in range(STEPS):
        sent = []
        for i in range(N):
            psi = w[i] - rate(a.lr, t) * plain.gradient(i, w[i], 1 + t)
            sent.append(psi + noise("z", a.noise, t + 1, i))
        w = [plain.mixed(i, sent) for i in range(N)]
        yield {"theta": w}


def mdsg(a, plain):
    """wᵢ⁺ = aᵢᵢψᵢ + Σⱼ≠ᵢ aᵢⱼ(ψⱼ + zⱼ): the sent copy carries noise, the own term stays exact."""
    w = plain.start()
    yield {"theta": w}
    for t in range(STEPS):
        psi = [w[i] - rate(a.lr, t) * plain.gradient(i, w[i], 1 + t) for i in range(N)]
        sent = [psi[i] + noise("z", a.noise, t + 1, i) for i in range(N)]
        w = [ZERO] * N
        for i in range(N):
            w[i] = w[i] + plain.W[i, i] * psi[i]
            for j in plain.neighbours[i]:
                w[i] = w[i] + plain.W[i, j] * sent[j]
        yield {"theta": w}


def psgt(a, plain):
    """θ⁺ = W(θ + ξ) − λ(γ + ζ); γ⁺ = W(γ + ζ) + ∇L⁺ − ∇L; noise of variance √(0.1·0.8ⁿ)."""
    theta = plain.start()
    grad = [plain.gradient(i, theta[i], 0) for i in range(N)]
    gamma = list(grad)
    yield {"theta": theta, "gamma": gamma, "grad": grad}
    for t in range(STEPS):
        variance = a.scale**2 if isinstance(a.scale, float) else math.sqrt(0.1 * 0.8**t)
        law = tacit.Gaussian(math.sqrt(variance))
        sent_theta = [theta[i] + noise("xi", law, t + 1, i) for i in range(N)]
        sent_gamma = [gamma[i] + noise("zeta", law, t + 1, i) for i in range(N)]
        theta = [plain.mixed(i, sent_theta) - rate(a.lr, t) * sent_gamma[i] for i in range(N)]
        new = [plain.gradient(i, theta[i], 1 + t) for i in range(N)]
        gamma = [plain.mixed(i, sent_gamma) + new[i] - grad[i] for i in range(N)]
        grad = new
        yield {"theta": theta, "gamma": gamma, "grad": grad}


# --- D-PSGD and DeFL-VP ---


def d_psgd(a, plain):
    """m⁺ = βm + ∇; x⁺ = Wx − ηWm⁺ (adapt, then combine), or Wx − ηm⁺ (combine, then adapt)."""
    x = plain.start()
    m = [ZERO] * N
    yield with_moments({"theta": x}, m if a.momentum else None)
    for t in range(STEPS):
        m = [a.momentum * m[i] + plain.gradient(i, x[i], 1 + t) for i in range(N)]
        step = [plain.mixed(i, m) for i in range(N)] if a.order == "adapt-then-combine" else m
        x = [plain.mixed(i, x) - rate(a.lr, t) * step[i] for i in range(N)]
        yield with_moments({"theta": x}, m if a.momentum else None)


def push_sum(a, plain):
    """Assran et al. 2019, Algorithm 1: sums x and weights w travel, models are x/w."""
    x, z = plain.start(), plain.start()
    w = [torch.ones(1, dtype=torch.float64)] * N
    m = [ZERO] * N
    kept = m if a.momentum else None
    yield with_moments({"theta": z, "numerator": x, "weight": w}, kept)
    for t in range(STEPS):
        pushed = []
        for i in range(N):
            m[i], d = moved(a, m[i], plain.gradient(i, z[i], 1 + t))
            pushed.append(x[i] - rate(a.lr, t) * d)
        x = [plain.mixed(i, pushed) for i in range(N)]
        w = [plain.mixed(i, w) for i in range(N)]
        z = [x[i] / w[i] for i in range(N)]
        yield with_moments({"theta": z, "numerator": x, "weight": w}, kept)


def randomized_response(v, epsilon, i, tick):
    """Algorithm 3: keep each sign with p = e^ε/(1 + e^ε), else flip it; rescale by 1/(2p − 1).

    32 random bits per coordinate: p is a multiple of 2⁻³², the next one below.
    """
    p = math.floor(math.exp(epsilon) / (1 + math.exp(epsilon)) * 2**32) / 2**32
    drawn = words("response", tick, i, P)
    sent = torch.empty(P, dtype=torch.float64)
    for k in range(P):
        s = 1.0 if v[k] >= 0 else -1.0
        kept = int(drawn[k]) / 2**32 < p
        sent[k] = (s if kept else -s) / (2 * p - 1)
    return sent


def compressed(codec, u, i, tick):
    """Algorithm 2: what a neighbour of client i decodes from the bytes that i encodes.

    For signs these are the bytes of the codec as given: that signs travel as bits with one scale
    must not change what arrives.
    """

    def drawn(purpose, count):
        return words(f"codec/{purpose}", tick, i, count)[None]

    return codec.decode(codec.encode(u[None], drawn), P, torch.float64)[0]


def defl_vp(a, plain):
    """Algorithm 1, each part with its switch, and momentum on what was received."""
    x = plain.start()
    m = [ZERO] * N
    h = [ZERO] * N
    yield {"theta": x, "momentum": m, "variate": h}
    for t in range(STEPS):
        q, h_new = [], []
        for i in range(N):
            g = plain.gradient(i, x[i], 1 + t)
            v = g - h[i] + plain.mixed(i, h) if a.variance_reduction else g
            v_sent = randomized_response(v, a.epsilon, i, t + 1) if a.randomized_response else v
            q.append(compressed(a.codec, v_sent, i, t + 1))
            seen = v_sent if a.private_variates else g
            h_new.append((1 - a.alpha) * h[i] + a.alpha * seen if a.variance_reduction else ZERO)
        h = h_new
        m = [a.momentum * m[i] + plain.mixed(i, q) for i in range(N)]
        x = [plain.mixed(i, x) - rate(a.lr, t) * m[i] for i in range(N)]
        yield {"theta": x, "momentum": m, "variate": h}


# --- PDMM, ADMM and the server ---


def solved(solver, i, before, b, c, t, plain):
    """The argmin of fᵢ(w) + bᵀw + c/2 ‖w‖² (eq. 4), or a way towards it."""
    mu = getattr(solver, "mu", None)
    if isinstance(solver, QuadraticSolver):
        return (before / mu - plain.gradient(i, before, 1 + t) - b) / (1 / mu + c)
    if isinstance(solver, GradientSolver):
        return before - mu * (plain.gradient(i, before, 1 + t) + b + c * before)
    if isinstance(solver, InnerSolver):
        w = before
        for k in range(solver.steps):
            w = w - mu * (plain.gradient(i, w, 1 + t * solver.steps + k) + b + c * w)
        return w
    x, y = (array.numpy() for array in samples(i, 1 + t, plain.batch_size))
    hessian = x.T @ x / len(x) + c * np.eye(P)
    return torch.from_numpy(np.linalg.solve(hessian, x.T @ y / len(x) - b.numpy()))


def splitting(a, plain):
    """Algorithm 1. z[i, j] is zᵢ|ⱼ, used by node i; its neighbour j computes and sends it."""
    theta = {"pdmm": 1.0, "admm": 0.5}[a.name]
    w = plain.start()
    z = {(i, j): noise("z0", a.noise, 0, i, j) for i, j in plain.edges}

    def state():
        own = [z[i, j] for i, j in plain.edges]
        there = [z[j, i] for i, j in plain.edges]
        return {"theta": w, "z": own, "z_there": there}

    yield state()
    for t in range(STEPS):
        new = {}
        w_before, w = w, []
        for i in range(N):
            B = {j: 1.0 if i < j else -1.0 for j in plain.neighbours[i]}
            b, d = ZERO, len(plain.neighbours[i])
            for j in plain.neighbours[i]:
                b = b + B[j] * z[i, j]
            w.append(solved(a.solver, i, w_before[i], b, a.rho * d + a.weight_decay, t, plain))
            for j in plain.neighbours[i]:  # eq. 5
                new[j, i] = (1 - theta) * z[j, i] + theta * (z[i, j] + 2 * a.rho * B[j] * w[i])
        sent = {edge: new[edge] - z[edge] for edge in z}  # eq. 13
        z = {edge: z[edge] + sent[edge] for edge in z}
        yield state()


def fedavg(a, plain):
    """Eq. 1: w⁺ = w − (μ/n)Σ∇fᵢ(w); local steps sum the gradients of each client's descent."""
    w = sum(plain.start()) / N
    yield {"theta": [w] * N}
    for t in range(STEPS):
        mu = rate(a.lr, t)
        total = ZERO
        for i in range(N):
            own = w
            for local in range(a.local_steps):
                gradient = plain.gradient(i, own, 1 + t * a.local_steps + local)
                own = own - mu * gradient
                total = total + gradient
        w = w - mu / N * total
        yield {"theta": [w] * N}


# --- differential privacy ---


def masked_total(plain, code, rows, tick):
    """Σᵢ (xᵢ + Zᵢ/s): client i adds masks mᵢⱼ to round(s xᵢ) + Zᵢ, modulo 2³²."""
    sums = [0] * P
    for i in range(N):
        noise = [0] * P if code.noise is None else integers("update", code.noise, tick, i)
        for k in range(P):
            sent = round(code.scale * float(rows[i][k])) + noise[k]
            for j in plain.neighbours[i]:
                own = mask("update", tick, min(i, j), max(i, j))[k]
                sent += own if i < j else -own
            sums[k] = (sums[k] + sent) % 2**32
    signed = [x - 2**32 if x >= 2**31 else x for x in sums]
    return torch.tensor(signed, dtype=torch.float64) / code.scale


def private_sgd(a, plain):
    """G = Σᵢ (gᵢ + ζᵢ); v⁺ = μv + G/B; θ⁺ = θ − λv⁺, from one model for all; or Adam on G/B."""
    mechanism = a.mechanism
    bound, probability, expected = mechanism.bound, mechanism.sampling_rate, mechanism.expected
    theta, first, second = plain.start()[0], ZERO, ZERO

    def state():
        return {"theta": [theta] * N, "first": [first] * N, "second": [second] * N}

    yield state()
    for t in range(STEPS):
        updates = []
        for i in range(N):
            if mechanism.unit == "sample":
                clip = (1 - mechanism.rounding) * bound
                g = plain.clipped_sum(i, theta, clip, probability, t + 1)
            else:
                g, own = ZERO, theta
                for local in range(a.local_steps):
                    gradient = plain.gradient(i, own, 1 + t * a.local_steps + local)
                    own = own - a.local_lr * gradient
                    g = g + gradient
                g = g * min(1.0, bound / math.sqrt(float(g @ g)))
            updates.append(g)
        mean = masked_total(plain, mechanism.code, updates, t + 1) / expected
        if a.optimizer == "sgd":
            first = a.momentum * first + mean
            theta = theta - rate(a.lr, t) * first
        else:
            beta1, beta2 = a.betas
            first = beta1 * first + (1 - beta1) * mean
            second = beta2 * second + (1 - beta2) * mean * mean
            # Kingma and Ba's Algorithm 1 with the order of section 2: ϵ is added to √s.
            corrected = rate(a.lr, t) * math.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
            theta = theta - torch.tensor(
                [corrected * float(m) / (math.sqrt(float(s)) + 1e-8)
                 for m, s in zip(first, second, strict=True)],
                dtype=torch.float64,
            )  # fmt: skip
        yield state()


def decor(a, plain):
    """θᵢ⁺ = Σⱼ wᵢⱼ (θⱼ − (λ/B)(gⱼ + uⱼ + Σ_out v − Σ_in v))."""
    mechanism = a.mechanism
    own, shared = (tacit.Gaussian(x) for x in (mechanism.own, mechanism.shared / math.sqrt(2)))
    batch = mechanism.expected_each
    theta = plain.start()
    m = [ZERO] * N
    yield with_moments({"theta": theta}, m if a.momentum else None)
    for t in range(STEPS):
        sent = []
        for i in range(N):
            clip = (1 - mechanism.rounding) * mechanism.bound
            g = plain.clipped_sum(i, theta[i], clip, mechanism.sampling_rate, t + 1)
            g = g + noise("u", own, t + 1, i)
            for j in plain.neighbours[i]:
                g = g + noise("v", shared, t + 1, i, j) - noise("v", shared, t + 1, j, i)
            m[i], direction = moved(a, m[i], g + a.weight_decay * batch * theta[i])
            sent.append(theta[i] - rate(a.lr, t) / batch * direction)
        theta = [plain.mixed(i, sent) for i in range(N)]
        yield with_moments({"theta": theta}, m if a.momentum else None)


# --- the cases ---

EQUATIONS = {
    "dsgt": tracking,
    "dp-dsgt": tracking,
    "lppa": tracking,
    "dsg": dsg,
    "edsg": edsg,
    "dsg-rms": dsg_rms,
    "edsg-rms": edsg_rms,
    "dsgt-rms": dsgt_rms,
    "pd-lms": pd_lms,
    "mdsg": mdsg,
    "psgt": psgt,
    "d-psgd": d_psgd,
    "push-sum": push_sum,
    "defl-vp": defl_vp,
    "pdmm": splitting,
    "admm": splitting,
    "fedavg": fedavg,
    "private-sgd": private_sgd,
    "decor": decor,
}

DECAYING = tacit.Exponential(0.1, 0.8, steps=2)
CLASSIC = "combine-then-adapt"


def law(structure):
    """A random matrix whose every entry matters."""
    return MatrixStep(structure, mean=0.9, deviation=0.2, off_diagonal=0.3)


TRACKING = {
    "dsgt": tacit.DSGT(lr=0.05),
    "dsgt, decaying": tacit.DSGT(lr=DECAYING),
    "dp-dsgt, start": tacit.DPDSGT(lr=0.05, noise=tacit.Laplace(0.3)),
    "dp-dsgt, every": tacit.DPDSGT(lr=0.05, noise=tacit.Gaussian(0.3), inject="every"),
    "lppa, start": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7)),
    "lppa, fresh": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7), fresh=True),
    "lppa, fresh, sent": tacit.LPPA(lr=0.05, noise=tacit.Laplace(0.7), fresh=True, masks="sent"),
    "lppa, two local steps": tacit.LPPA(lr=0.03, noise=tacit.Gaussian(0.5), local_steps=2),
    "dsgt, nesterov": tacit.DSGT(lr=0.02, momentum=0.8, nesterov=True, weight_decay=0.1),
    "dp-dsgt, momentum": tacit.DPDSGT(lr=0.02, momentum=0.8, inject="every"),
    "lppa, momentum": tacit.LPPA(lr=0.02, momentum=0.8, fresh=True, local_steps=2),
    "lppa, decay": tacit.LPPA(lr=DECAYING, weight_decay=0.2),
    "lppa, fresh, three local steps": tacit.LPPA(lr=0.02, fresh=True, local_steps=3),
}
CASES = TRACKING | {
    "dsg": DSG(lr=0.05),
    "dsg, decaying": DSG(lr=DECAYING),
    "dsg, nesterov": DSG(lr=DECAYING, momentum=0.8, nesterov=True, weight_decay=0.2),
    "dsg, adam": DSG(lr=DECAYING, optimizer="adam", weight_decay=0.2),
    "dsg, adamw": DSG(lr=0.05, optimizer="adamw", betas=(0.8, 0.9), weight_decay=0.2),
    "edsg, momentum": EDSG(lr=0.02, momentum=0.8, weight_decay=0.2),
    "edsg": EDSG(lr=0.05),
    "edsg, decaying": EDSG(lr=DECAYING),
    "dsg-rms, upper, norm": DSGRMS(lr=0.05, matrix=law("upper"), protection=NormVector(0.4)),
    "dsg-rms, diagonal, erf": DSGRMS(lr=0.05, matrix=law("diagonal"), protection=ErfVector(0.5)),
    "dsg-rms, sparse, tanh": DSGRMS(lr=DECAYING, matrix=law("sparse"), protection=TanhVector(-0.3)),
    "dsg-rms, dense, norm": DSGRMS(lr=0.05, matrix=law("dense"), protection=NormVector(-0.2)),
    "edsg-rms, upper, norm": EDSGRMS(lr=0.05, matrix=law("upper"), protection=NormVector(-0.4)),
    "edsg-rms, sparse, erf": EDSGRMS(lr=0.05, matrix=law("sparse"), protection=ErfVector(0.5)),
    "edsg-rms, dense, tanh": EDSGRMS(lr=DECAYING, matrix=law("dense"), protection=TanhVector(0.3)),
    "dsgt-rms, upper, norm": DSGTRMS(lr=0.05, matrix=law("upper"), protection=NormVector(0.4)),
    "dsgt-rms, sparse, tanh": DSGTRMS(
        lr=DECAYING, matrix=law("sparse"), protection=TanhVector(0.3)
    ),
    "pd-lms": PDLMS(lr=0.05, noise=tacit.Gaussian(0.3)),
    "dsg-rms, decay": DSGRMS(lr=0.05, weight_decay=0.2),
    "dsgt-rms, decay": DSGTRMS(lr=0.05, weight_decay=0.2),
    "pd-lms, decay": PDLMS(lr=0.05, weight_decay=0.2),
    "pd-lms, laplace": PDLMS(lr=DECAYING, noise=tacit.Laplace(0.2)),
    "mdsg": MDSG(lr=DECAYING, noise=tacit.Gaussian(0.3)),
    "psgt": PSGT(lr=0.05),
    "psgt, constant noise": PSGT(lr=DECAYING, scale=0.2),
    "d-psgd": DPSGD(lr=0.05),
    "d-psgd, momentum": DPSGD(lr=DECAYING, momentum=0.9),
    "d-psgd, classic": DPSGD(lr=0.05, order=CLASSIC),
    "d-psgd, classic, momentum": DPSGD(lr=DECAYING, order=CLASSIC, momentum=0.9),
    "push-sum": PushSum(lr=0.05),
    "push-sum, nesterov": PushSum(lr=DECAYING, momentum=0.8, nesterov=True, weight_decay=0.2),
    "defl-vp": DeFLVP(lr=0.05),
    "defl-vp, private variates": DeFLVP(lr=0.05, epsilon=1.0, alpha=0.3, private_variates=True),
    "defl-vp, momentum": DeFLVP(lr=DECAYING, epsilon=1.0, momentum=0.9, codec=QSGD(bits=2)),
    "defl-vp, without variance reduction": DeFLVP(lr=0.05, epsilon=1.0, variance_reduction=False),
    "defl-vp, without response": DeFLVP(lr=0.05, alpha=0.3, randomized_response=False),
    "defl-vp, without compression": DeFLVP(lr=0.05, epsilon=0.5, alpha=0.3, codec=Identity()),
    "defl-vp, qsgd": DeFLVP(lr=0.05, epsilon=1.0, alpha=0.3, codec=QSGD(bits=4)),
    "defl-vp, qsgd without response": DeFLVP(
        lr=0.05, randomized_response=False, codec=QSGD(bits=8)
    ),
    "defl-vp, rand-k of qsgd": DeFLVP(
        lr=0.05, randomized_response=False, momentum=0.5, codec=RandK(k=3, values=QSGD(bits=4))
    ),
    "defl-vp, response alone": DeFLVP(
        lr=0.05, epsilon=0.5, variance_reduction=False, codec=Identity()
    ),
    "defl-vp, variance reduction alone": DeFLVP(
        lr=0.05, alpha=0.3, randomized_response=False, codec=Identity()
    ),
    "defl-vp, compression alone": DeFLVP(
        lr=0.05, variance_reduction=False, randomized_response=False
    ),
    "defl-vp, all off": DeFLVP(
        lr=DECAYING,
        momentum=0.9,
        variance_reduction=False,
        randomized_response=False,
        codec=Identity(),
    ),
    "defl-vp, decay": DeFLVP(lr=0.05, randomized_response=False, weight_decay=0.2),
    "fedavg, decay": FedAvg(lr=0.05, local_steps=2, weight_decay=0.2),
    "fedavg": FedAvg(lr=0.05),
    "fedavg, three local steps": FedAvg(lr=DECAYING, local_steps=3),
    "private-sgd": PrivateSGD(lr=0.05),
    "private-sgd, momentum": PrivateSGD(lr=DECAYING, momentum=0.9),
    "private-sgd, adam": PrivateSGD(lr=DECAYING, optimizer="adam", betas=(0.8, 0.95)),
    "private-sgd, without noise": PrivateSGD(lr=0.05),
    "private-sgd, clients": PrivateSGD(lr=0.05, momentum=0.5),
    "private-sgd, clients, three local steps": PrivateSGD(
        lr=DECAYING, local_steps=3, local_lr=0.04
    ),
    "decor": Decor(lr=0.05),
    "decor, momentum": Decor(lr=0.02, momentum=0.8, nesterov=True, weight_decay=0.2),
    "decor, local noise": Decor(lr=DECAYING, correlation=0.0),
}
CLIENTS = tacit.Privacy(epsilon=5.0, delta=0.01, unit="client")
PROMISES = {
    "private-sgd, momentum": replace(PROMISE, clip=0.5),
    "private-sgd, without noise": tacit.Privacy(epsilon=math.inf, clip=2.0),
    "private-sgd, clients": CLIENTS,
    "private-sgd, clients, three local steps": replace(CLIENTS, clip=3.0),
    "decor, local noise": replace(PROMISE, clip=0.5),
}
for kind in (PDMM, ADMM):
    for solver in (
        QuadraticSolver(mu=0.1),
        GradientSolver(mu=0.07),
        InnerSolver(mu=0.06, steps=3),
        ExactSolver(),
    ):
        label = f"{kind.name}, {type(solver).__name__.lower()}"
        CASES[label] = kind(rho=0.3, solver=solver, noise=tacit.Gaussian(0.5))
    CASES[f"{kind.name}, decay"] = kind(rho=0.3, solver=ExactSolver(), weight_decay=0.2)
    CASES[f"{kind.name}, sent masks"] = kind(rho=0.3, noise=tacit.Laplace(0.5), masks="sent")


# Gradient tracking also works on directed graphs.
TRACKING_RUNS = [(case, graph) for case in TRACKING for graph in ("random", "random directed")]
# Only the columns of its weights sum to one.
GRAPHS["shares"] = tacit.Topology.random_directed(N, 0.4, seed=2).mixing("out-degree")
# Every case on a graph with batches, and one of each algorithm on another with full gradients.
BATCHED, FULL = (BATCH, "stacked"), (None, "looped")
RUNS = [(case, "random", *BATCHED) for case in CASES]
FIRST_CASES = {algorithm.name: case for case, algorithm in reversed(CASES.items())}
RUNS += [(case, "ring", *FULL) for case in FIRST_CASES.values()]
RUNS += [(case, "random directed", *BATCHED) for case in TRACKING]
RUNS += [(case, "shares", *BATCHED) for case in CASES if case.startswith("push-sum")]


@functools.cache
def prepared(case, graph, batch_size):
    """The algorithm of a case, and a task that suits it.

    An algorithm that draws samples has none for full gradients; it then draws about half of them.
    """
    algorithm, promise = CASES[case], PROMISES.get(case, PROMISE)
    if batch_size is None and algorithm.keeps_guarantee:
        batch_size = 4
    return suited(algorithm, squares(batch_size), GRAPHS[graph], promise=promise)


@functools.cache
def reference(case, graph, batch_size):
    """The states after 0, 1, …, STEPS iterations, as tensors by field name."""
    algorithm, task = prepared(case, graph, batch_size)
    plain = Plain(
        GRAPHS[graph], task.batch_size, one_start=algorithm.needs_total, decay=_coupled(algorithm)
    )
    states = EQUATIONS[algorithm.name](algorithm, plain)
    return [{name: torch.stack(rows) for name, rows in state.items()} for state in states]


def _coupled(algorithm):
    """ω where it is part of each client's gradient."""
    apart = algorithm.keeps_guarantee or isinstance(algorithm, Splitting)
    apart = apart or getattr(algorithm, "optimizer", "") == "adamw"
    return 0.0 if apart else algorithm.weight_decay


def compare(state, expected):
    got = tensors_of(state)
    assert got.keys() == expected.keys()
    for name, rows in expected.items():
        assert got[name].shape == rows.shape
        distance = float((got[name] - rows).abs().max())
        assert distance <= 1e-12 * float(rows.abs().max()), f"{name} is {distance:.2g} away"


def test_every_case_has_equations():
    # A new algorithm is tested by the conformance suite until someone writes its equations here.
    assert EQUATIONS.keys() <= ALGORITHMS.keys()
    assert {algorithm.name for algorithm in CASES.values()} == EQUATIONS.keys()


@pytest.mark.parametrize(("case", "graph", "batch_size", "gradients"), RUNS)
def test_stacked_rows_follow_the_equations(case, graph, batch_size, gradients):
    algorithm, task = prepared(case, graph, batch_size)
    setting = Setting(algorithm, task, GRAPHS[graph], SEED, gradients=gradients)
    simulation = Simulation(setting)
    simulation.start()
    states = reference(case, graph, batch_size)
    compare(simulation.state, states[0])
    for expected in states[1:]:
        simulation.step()
        compare(simulation.state, expected)


# --- hosting some of the rows ---


# With default options, except for those that must be given.
HOSTED = {name: made(kind) for name, kind in ALGORITHMS.items()} | TRACKING
HOSTED |= {
    name: CASES[name]
    for name in (
        "defl-vp, private variates",
        "defl-vp, without compression",
        "defl-vp, qsgd",
        "admm, sent masks",
        "fedavg, three local steps",
        "private-sgd, momentum",
        "private-sgd, adam",
        "private-sgd, without noise",
        "private-sgd, clients, three local steps",
    )
}


HOSTED_RUNS = TRACKING_RUNS + [(name, "random") for name in HOSTED if name not in TRACKING]


@functools.cache
def run_all(name, graph):
    promise = PROMISES.get(name, PROMISE)
    case = suited(HOSTED[name], squares(BATCH), GRAPHS[graph], promise=promise)
    return *case, *run_together(*case, GRAPHS[graph], STEPS, SEED)


@pytest.mark.parametrize(("name", "graph"), HOSTED_RUNS)
def test_hosting_some_clients_gives_their_rows(name, graph):
    algorithm, task, together, recording = run_all(name, graph)
    graph = GRAPHS[graph]
    for ids in ([N - 1], [1, 2, 5]):
        apart = run_apart(algorithm, task, graph, STEPS, SEED, ids, recording)
        for state, all_clients in zip(apart, together, strict=True):
            compare(state, rows_of(ids, all_clients, graph))


SUMS = [run for run in HOSTED_RUNS if HOSTED[run[0]].needs_total]


@pytest.mark.parametrize("ids", [[N - 1], [1, 2, 5]], ids=str)
@pytest.mark.parametrize(("name", "graph"), SUMS)
def test_clients_that_learn_a_sum_have_the_same_bits_wherever_they_are_hosted(name, graph, ids):
    """Sums of integers are not rounded."""
    algorithm, task, together, recording = run_all(name, graph)
    graph = GRAPHS[graph]
    apart = run_apart(algorithm, task, graph, STEPS, SEED, ids, recording, lazily=True)
    for state, all_clients in zip(apart, together, strict=True):
        for field, rows in rows_of(ids, all_clients, graph).items():
            assert torch.equal(getattr(state, field), rows)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("defl-vp")])
def test_bytes_on_the_wire_are_the_rows_that_arrive(case):
    algorithm = CASES[case]
    codec = for_signs(algorithm.codec) if algorithm.randomized_response else algorithm.codec
    _, recording = run_together(algorithm, squares(BATCH), GRAPHS["random"], STEPS, SEED)
    messages = [message for _, sent in recording.calls for message in sent.values()]
    coded = [message for message in messages if message.wire is not None]
    assert len(coded) == STEPS
    for message in coded:
        assert message.wire.dtype == torch.uint8
        assert message.wire.shape == (N, codec.size(P, torch.float64))
        assert torch.equal(codec.decode(message.wire, P, torch.float64), message.rows)
