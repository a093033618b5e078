"""Processes of a gloo group that run one job after the other, because starting them is slow."""

import contextlib
import multiprocessing
import os
import signal
import traceback
from dataclasses import replace

import numpy as np
import small_modules
import torch
import torch.distributed as dist
from random_models import random_task

import tacit
from support import suited
from tacit.algorithms.algorithm import tensors_of
from tacit.config.loading import make_config
from tacit.core.workers import WorkerPool
from tacit.engines import checkpoints, torchrun
from tacit.engines.group import Hosted, ProcessGroup
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.engines.torchrun import TorchrunGroup
from tacit.experiment.run import ProgressListener, run
from tacit.record.checkpoint import Checkpoint

CLIENTS, WIDTH, STEPS, SEED = 11, 4, 5, 3
GRAPHS = {
    # Meets every requirement an algorithm may have, and is cut in many places.
    "undirected": tacit.Topology.erdos_renyi(CLIENTS, 0.35, seed=4).mixing("metropolis", lazy=True),
    "directed": tacit.Topology.random_directed(CLIENTS, 0.2, seed=2).mixing("sinkhorn", seed=3),
    "complete": tacit.Topology.complete(CLIENTS).mixing("metropolis"),
    "ring": tacit.Topology.ring(CLIENTS).mixing("metropolis"),
}
# Variants that exchange other messages than the defaults.
VARIANTS = {
    "lppa, fresh": ("lppa", {"fresh": True}),
    "lppa, masks sent": ("lppa", {"masks": "sent"}),
    "pdmm, masks sent": ("pdmm", {"masks": "sent"}),
    "pdmm, exact": ("pdmm", {"solver": tacit.ExactSolver()}),
    "defl-vp, private": ("defl-vp", {"private_variates": True, "momentum": 0.5}),
    "fedavg, local steps": ("fedavg", {"local_steps": 2}),
    "lppa, nesterov": ("lppa", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "dsg, adam": ("dsg", {"optimizer": "adam", "weight_decay": 0.1}),
    "fedavg, adamw": ("fedavg", {"optimizer": "adamw", "weight_decay": 0.1}),
    "private-sgd, momentum": ("private-sgd", {"momentum": 0.9}),
    "private-sgd, adam": ("private-sgd", {"optimizer": "adam"}),
    "private-sgd, clients": ("private-sgd", {"local_steps": 2}),
}
# On graphs where every client has two neighbours or more.
ROBUST = {"dsg, clipping": "centred-clipping", "d-psgd, trimming": "trimmed-mean"}
CLIENT_LEVEL = tacit.Privacy(epsilon=5.0, delta=0.01, unit="client")


def made(label):
    """A registered algorithm, or one of the variants."""
    if label in ROBUST:
        kind = tacit.ALGORITHMS[label.split(",")[0]]
        return tacit.Robust(suited.made(kind), ROBUST[label], liars=1)
    name, options = VARIANTS.get(label, (label, {}))
    return suited.made(tacit.ALGORITHMS[name], **options)


def squares(dtype=torch.float64, batch_size=3):
    """Least squares on parts of different sizes, from different starts."""
    draw = torch.Generator().manual_seed(8)
    sizes = [5 + k % 4 for k in range(CLIENTS)]
    x = [torch.randn(size, WIDTH, generator=draw, dtype=torch.float64).to(dtype) for size in sizes]
    y = [torch.randn(size, generator=draw, dtype=torch.float64).to(dtype) for size in sizes]
    start = torch.randn(CLIENTS, WIDTH, generator=draw, dtype=torch.float64).to(dtype)
    return tacit.least_squares(x, y, theta0=start, batch_size=batch_size)


def simulation(label, graph, dtype, group=None, transcript=None, **options):
    options = {"gradients": "looped", "seed": SEED} | options
    graph = GRAPHS[graph]
    hosted = Hosted.of(group or ProcessGroup(), graph)
    promise = CLIENT_LEVEL if label.endswith("clients") else suited.PROMISE
    algorithm, task = suited.suited(made(label), squares(dtype), graph, promise=promise)
    return Simulation(
        Setting(algorithm, task, graph, **options), hosted=hosted, transcript=transcript
    )


def gather_state(run):
    """The state of all clients in the first process; None elsewhere."""
    return gather_rows(run, tensors_of(run.state))


def gather_rows(run, tensors):
    """Rows of all clients in the first process; None elsewhere."""
    gathered = {}
    for name, rows in tensors.items():
        total = run.hosted.total_rows(len(rows))
        indices = [run.hosted.row_indices(total, rank) for rank in range(run.hosted.group.ranks)]
        all_rows = torch.full((total, rows.shape[1]), torch.nan, dtype=rows.dtype)
        for rank, part, block in run.hosted.group.gather(rows, list(map(len, indices))):
            all_rows[indices[rank][part]] = block
        gathered[name] = all_rows.numpy()
    return gathered if run.hosted.group.rank == 0 else None


def observed(run):
    return replace(run.observe(), wall_seconds=0.0)


def trajectory(label, graph, dtype, group=None, **options):
    """The states after 0, 1, … iterations, what is observed, and what travelled."""
    run = simulation(label, graph, dtype, group, **options)
    run.start()
    states, first = [gather_state(run)], observed(run)
    for _ in range(STEPS):
        run.step()
        states.append(gather_state(run))
    return states, [first, observed(run)], run.net.bytes_sent


def random_models(algorithm, batch_size, group=None):
    """The last state of a run with a model that draws for its samples."""
    graph, task = GRAPHS["ring"], random_task(CLIENTS, batch_size)
    algorithm, task = suited.suited(made(algorithm), task, graph)
    setting = Setting(algorithm, task, graph, seed=SEED, gradients="looped")
    run = Simulation(setting, hosted=Hosted.of(group or ProcessGroup(), graph))
    run.start()
    for _ in range(STEPS):
        run.step()
    return gather_state(run)


def measured(group=None):
    """What is observed of a classification with metrics and own test sets; one client has none."""
    draw = torch.Generator().manual_seed(5)

    def part(count):
        x = torch.randn(count, WIDTH, generator=draw, dtype=torch.float64)
        return x, torch.randint(3, (count,), generator=draw)

    parts, test = [part(6) for _ in range(CLIENTS)], part(40)
    tests = [None if client == 4 else part(9) for client in range(CLIENTS)]
    module = torch.nn.Linear(WIDTH, 3).double()
    task = tacit.Task(module, parts, test=test, init="independent")
    graph = GRAPHS["ring"]
    names = {name: name for name in ("auc", "f1", "brier", "balanced-accuracy", "log-loss")}
    metrics = names | {"largest": lambda outputs, targets: outputs.max()}
    setting = Setting(
        made("dsgt"),
        replace(task, client_tests=tests),
        graph,
        seed=SEED,
        gradients="looped",
        metrics=metrics,
    )
    run = Simulation(setting, hosted=Hosted.of(group or ProcessGroup(), graph))
    run.start()
    for _ in range(STEPS):
        run.step()
    return observed(run)


def personal(algorithm, steps, group=None, folder=None):
    """The state, local parameters and last record of a run with local parameters.

    With a folder, it stops in the middle and continues from a checkpoint.
    """
    draw = torch.Generator().manual_seed(5)
    parts = [
        (torch.randn(6 + k, 4, generator=draw), torch.randint(3, (6 + k,), generator=draw))
        for k in range(CLIENTS)
    ]
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    task = tacit.Task(
        net.double(), parts, batch_size=3, local=["2"], local_lr=0.2, init="independent"
    )
    graph = GRAPHS["undirected"]
    setting = Setting(made(algorithm), task, graph, seed=SEED, gradients="looped")

    def begun():
        return Simulation(setting, hosted=Hosted.of(group or ProcessGroup(), graph))

    run = begun()
    run.start()
    for step in range(steps):
        if folder is not None and step == steps // 2:
            kept = Checkpoint(run.state, run.t, 0, 0.0, "mark", local=run.local)
            checkpoints.save(folder, kept, run.hosted)
            run = begun()
            saved = checkpoints.load_latest(folder, run.algorithm, "mark", "cpu", run.hosted)
            run.restore(saved)
        run.step()
    found = gather_rows(run, tensors_of(run.state) | {"local": run.local})
    return found, replace(run.observe(), wall_seconds=0.0, bytes_sent=0)


# --- jobs of the workers; the group is their first argument ---


def follow_personal(group, algorithm, steps, folder):
    return personal(algorithm, steps, group, folder)


def follow(group, label, graph, dtype, **options):
    return trajectory(label, graph, dtype, group, **options)


def follow_module(group, label, name, strategy):
    """The states after 0, 1, … iterations with a module, in the first process."""
    algorithm, task = small_modules.module_case(label, name)
    graph, seed = small_modules.GRAPH, small_modules.SEED
    setting = Setting(algorithm, task, graph, seed=seed, gradients=strategy)
    run = Simulation(setting, hosted=Hosted.of(group, graph))
    run.start()
    states = [gather_state(run)]
    for _ in range(small_modules.STEPS):
        run.step()
        states.append(gather_state(run))
    return states


def follow_metrics(group):
    return measured(group)


def follow_random_models(group, algorithm, batch_size):
    return random_models(algorithm, batch_size, group)


def traffic(group, graph, width, dtype):
    """Bytes sent to other ranks by a mix of two tensors and by a send; the partition's cut."""
    graph = GRAPHS[graph]
    hosted = Hosted.of(group, graph)
    partition = hosted.partition
    net = hosted.network(graph, dtype, "cpu", WorkerPool(1))
    rows = torch.zeros(len(hosted.ids), width, dtype=dtype)
    net.mix(x=rows, y=rows)
    mixed = net.boundary_bytes
    net.send("z", torch.zeros(len(partition.out_edges(group.rank)), width, dtype=dtype))
    sent = net.boundary_bytes - mixed
    net.average(x=rows)
    assert net.boundary_bytes == mixed + sent
    return mixed, sent, partition.volume, partition.cut_edges


def continued(group, label, folder, to):
    """Continue from the newest checkpoint in a folder, or start, and save after iteration `to`."""
    run = simulation(label, "undirected", torch.float64, group)
    saved = checkpoints.load_latest(folder, run.algorithm, "mark", "cpu", run.hosted)
    if saved is None:
        run.start()
    else:
        run.restore(saved)
    while run.t < to:
        run.step()
    kept = Checkpoint(run.state, run.t, run.net.bytes_sent, 0.0, "mark")
    checkpoints.save(folder, kept, run.hosted)


def diverging(group, label, steps):
    """How a run ends that cannot stay finite."""
    # Steps that are far too long, and infinite noise: of models, and of edges at the start.
    cause = {"dsgt": {"lr": 1e150}, "pdmm": {"noise": tacit.Gaussian(1e308)}, "lppa": {}}[label]
    algorithm = replace(made(label), **cause)
    task = squares()
    if label == "lppa":
        # Only one client diverges, so only one rank notices.
        x, y = task.parts.arrays
        own = task.parts.order[task.parts.offsets[7] : task.parts.offsets[8]]
        far = x.index_put((own,), torch.tensor(1e200, dtype=x.dtype))
        task = replace(task, parts=replace(task.parts, arrays=(far, y)))
    graph = GRAPHS["undirected"]
    hosted = Hosted.of(group, graph)
    run = Simulation(Setting(algorithm, task, graph, seed=SEED, gradients="looped"), hosted=hosted)
    try:
        run.start()
        for _ in range(steps):
            run.step()
    except tacit.Diverged as problem:
        return str(problem)
    return None


def on_first(group, fail):
    """What each process gets when the first one returns a value or raises an error."""

    def compute():
        if fail:
            raise tacit.Misuse("No.", "Never.")
        return {"answer": [1, None, "ä"]}

    try:
        return group.run_on_first(compute)
    except tacit.TacitError as problem:
        return type(problem).__name__, problem.exit_code


def transcribed(group):
    from tacit.record.transcript import Keep, Transcript

    try:
        simulation("dsgt", "ring", torch.float64, group, transcript=Transcript(Keep()))
    except tacit.Misuse as problem:
        return str(problem)
    return None


def partition_sizes(group, clients):
    """The number of clients of a ring that each rank hosts, or the error."""
    try:
        partition = group.partition_clients(tacit.Topology.ring(clients).mixing())
    except tacit.TacitError as problem:
        return str(problem)
    return np.bincount(partition.rank_of, minlength=group.ranks).tolist()


def chosen(group):
    """The gradient backend that each process uses when none is requested."""
    return simulation("dsgt", "ring", torch.float64, group, gradients="auto").gradients.strategy


def mixed(group, graph, width):
    """How far a product with W is from that of one process, on a larger graph."""
    topologies = {"ring": tacit.Topology.ring(400), "torus": tacit.Topology.torus(12, 30)}
    graph = topologies[graph].mixing()
    hosted = Hosted.of(group, graph)
    ids = hosted.ids
    net = hosted.network(graph, torch.float64, "cpu", WorkerPool(1))
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(graph.clients, width, dtype=torch.float64, generator=draw)
    before = x[ids].clone()
    (found,) = net.mix(x=before)
    assert torch.equal(before, x[ids])
    error = float((found - (graph.W @ x)[ids]).abs().max())
    return error, net.boundary_bytes, hosted.partition.volume


def experiment(group, config, out, die=None, stop=None, resume=False):
    """How `tacit run` ends if rank `die` is killed or rank `stop` gets Ctrl-C after iteration 3."""

    def on_step(simulation):
        if simulation.t == 3 and group.rank == die:
            os.kill(os.getpid(), signal.SIGKILL)
        if simulation.t == 3 and group.rank == stop:
            signal.raise_signal(signal.SIGINT)  # from the terminal
            signal.raise_signal(signal.SIGINT)  # from torchrun

    try:
        outcome = run(
            make_config(config),
            out,
            resume=resume,
            listener=ProgressListener(on_step=on_step),
            group=group,
        )
    except tacit.TacitError as problem:
        return type(problem).__name__, problem.exit_code, str(problem)
    return "done", 0, outcome.summary


# --- the processes ---


def serve(rank, ranks, store, jobs):
    """Run jobs until None arrives."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    # Three rows, so that checkpoints are written and read in several blocks.
    torchrun.BLOCK_BYTES = 100
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    group = TorchrunGroup(rank, ranks)
    while (job := jobs.recv()) is not None:
        name, arguments, options = job
        try:
            answer = globals()[name](group, *arguments, **options)
            jobs.send((True, answer))
        except Exception:
            jobs.send((False, traceback.format_exc()))
        else:
            if isinstance(answer, tuple) and answer[0] == "RankLost":
                # As the command does: closed connections end the wait of the others.
                return
    dist.destroy_process_group()


class Workers:
    def __init__(self, ranks, store):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tacit.experiment.run", "tacit.engines.torchrun"])
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(rank, ranks, str(store), theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def do(self, job, *arguments, **options):
        """The answers of all processes."""
        for pipe in self.pipes:
            pipe.send((job, arguments, options))
        answers = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(60), f"rank {rank} does not respond"
            try:
                good, answer = pipe.recv()
            except EOFError:
                good, answer = True, "died"
            assert good, f"rank {rank}: {answer}"
            answers.append(answer)
        return answers

    def close(self):
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
