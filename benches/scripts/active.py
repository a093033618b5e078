"""What a malicious neighbour gains over a curious one, for every algorithm, as a Markdown table.

python benches/scripts/active.py --seeds 3 --algorithms dsg d-psgd dsgt lppa
python benches/scripts/active.py               # every algorithm; takes about a quarter of an hour

Client 1 on a ring of five attacks client 0. Every client has 50 digits and takes batches of 16; the
model is a perceptron with 64 hidden units. Recovered samples (MSE below 0.001) are read from the
first layer in the first exact gradient of the victim and in the first sum over the honest clients,
and added over seeds. Membership is scored by the loss of the model that the adversary has after 100
iterations: the victim's where it is known, else its own. AUCs are means over seeds.
"""

from __future__ import annotations

import argparse

import torch

import tacit
from tacit import data, models
from tacit.algorithms import ALGORITHMS
from tacit.auditing.active.behaviours import ECHO, IMPRINT, ISOLATE, OVERRIDE
from tacit.auditing.active.comparison import check_behaviour
from tacit.auditing.active.recovered import count_recovered
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.membership_attacks import Candidates
from tacit.auditing.attacks.membership_scores import loss_score
from tacit.auditing.one_run import record_iterations
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks.flat import ModuleLoss

CLIENTS, SAMPLES, BATCH, HIDDEN, ITERATIONS, TRAINED = 5, 50, 16, 64, 3, 100
GRAPH = tacit.Topology.ring(CLIENTS).mixing("metropolis", lazy=True)
RATE = 0.1
PASSIVE = "passive"
SHOWN = (ECHO, ISOLATE, OVERRIDE, IMPRINT)


def setting(name: str, seed: int) -> Setting:
    digits = data.load("mnist-mini")
    shape = tuple(digits.train.x.shape[1:])
    order = torch.randperm(len(digits.train.x), generator=torch.Generator().manual_seed(seed))
    held = [order[k * SAMPLES : (k + 1) * SAMPLES] for k in range(CLIENTS)]
    task = tacit.Task(
        models.build("mlp", shape, 10, hidden=[HIDDEN]),
        [(digits.train.x[index], digits.train.y[index]) for index in held],
        batch_size=BATCH,
        test=(digits.test.x, digits.test.y),
        init="same",
    )
    kind = ALGORITHMS[name]
    options = {"lr": RATE} if "lr" in kind.__dataclass_fields__ else {}
    return Setting(kind(**options), task, GRAPH, seed)


def measure(
    name: str, seed: int, behaviour: str
) -> tuple[dict[str, tuple[int, int]], float] | None:
    """Samples recovered, and behind the evidence, by its kind; and the AUC.

    None if the algorithm has no message in which the behaviour is possible.
    """
    adversary, chosen = Adversary.curious(1), setting(name, seed)
    if behaviour != PASSIVE:
        adversary = Adversary.deviating(1, behaviour=behaviour)
        try:
            chosen = check_behaviour(chosen, adversary, 0)
        except Misuse:
            return None
    transcript = record_iterations(chosen, [adversary], ITERATIONS, lambda what, done, of: None)
    run = run_on_symbols(chosen.algorithm, GRAPH, ITERATIONS, common_start=True)
    leakage, truth = Leakage(Knowledge(run, adversary), 0), Truth(chosen.task, seed)
    counts = count_recovered(leakage, transcript, truth, most=1)
    simulation = Simulation(chosen, allow_divergence=True)
    simulation.start()
    for _ in range(TRAINED):
        simulation.step()
    known = ITERATIONS - 1 in leakage.of("model").indices("exact")
    theta = simulation.state.theta[0 if known else 1]
    candidates = Candidates.of(truth.members(0), truth.non_members(0), seed)
    assert candidates is not None
    assert isinstance(chosen.task.loss, ModuleLoss)
    scores = loss_score(chosen.task.loss, theta, candidates.x, candidates.y).double()
    scores = scores.nan_to_num(0.0)
    members = candidates.members
    auc = Roc.from_scores(scores[members].numpy(), scores[~members].numpy()).auc
    return {one.kind: (one.recovered, one.samples) for one in counts}, auc


def row(name: str, seeds: int) -> str:
    """One row of the table: counts for each kind of evidence, then an AUC for each behaviour."""
    found = {}
    for behaviour in (PASSIVE, *SHOWN):
        measured = [measure(name, seed, behaviour) for seed in range(seeds)]
        found[behaviour] = [one for one in measured if one is not None]

    def recovered(kind: str) -> str:
        cells = []
        for behaviour in (PASSIVE, IMPRINT):
            counts = [counts.get(kind, (0, 0)) for counts, _ in found[behaviour]]
            total = sum(samples for _, samples in counts)
            cells.append(f"{sum(count for count, _ in counts)} of {total}" if total else "–")
        return " → ".join(cells) if set(cells) != {"–"} else "–"

    aucs = [
        f"{sum(auc for _, auc in found[behaviour]) / seeds:.2f}" if found[behaviour] else "–"
        for behaviour in (PASSIVE, ECHO, ISOLATE, OVERRIDE)
    ]
    cells = [f"`{name}`", recovered("gradient"), recovered("difference"), recovered("sum"), *aucs]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="*", default=list(ALGORITHMS))
    arguments = parser.parse_args()
    print("| algorithm | gradient | difference | sum | AUC | echo | isolate | override |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.algorithms:
        print(row(name, arguments.seeds), flush=True)


if __name__ == "__main__":
    main()
