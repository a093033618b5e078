"""Algorithms that keep a guarantee: what they need, what they refuse, and when they stop."""

import math
from dataclasses import replace

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from support.suited import with_one_start
from tacit import Decor, Privacy, PrivateSGD, Setting, Simulation, Topology
from tacit.algorithms.private_algorithm import BudgetTooSmall, PrivateAlgorithm, prepare
from tacit.core.errors import Caution
from tacit.privacy.population import Population
from tacit.tasks.parts import Parts

N, SAMPLES, P = 6, 8, 5
RING = Topology.ring(N).mixing("metropolis")
PROMISE = Privacy(epsilon=3.0)
FEW_CLIENTS = Privacy(epsilon=3.0, delta=0.01, unit="client")


def squares(batch_size=4):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(N, SAMPLES, P, dtype=torch.float64, generator=rng)
    return tacit.least_squares(x, x.sum(2), batch_size=batch_size)


def run(algorithm=None, task=None, steps=4, **options):
    given = {"privacy": PROMISE, "gradients": "looped"} | options
    return tacit.run(task or squares(), algorithm or PrivateSGD(lr=0.1), RING, steps=steps, **given)


# --- what they refuse ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip": 0.2}, "tacit.Privacy(epsilon=…, clip=0.2)"),
        ({"correlation": -1.0}, "correlation"),
    ],
)
def test_impossible_options_of_decor(options, words):
    assert_mentions(misuse_message(Decor, lr=0.1, **options), words)


def test_a_guarantee_is_needed():
    for kind in (PrivateSGD, Decor):
        message = misuse_message(run, kind(lr=0.1), privacy=None)
        assert_mentions(message, kind.name, "no guarantee", "epsilon = 3")
        assert kind(lr=0.1).budget is None


def test_a_guarantee_does_not_go_with_exact_sums_of_columns():
    task = replace(squares(), disclosure="all clients learn totals")
    message = misuse_message(run, task=task)
    assert_mentions(message, "does not cover", "all clients learn totals", "standardize=False")
    assert run(task=task, privacy=Privacy(epsilon=math.inf)).theta.isfinite().all()


def test_a_guarantee_is_a_promise():
    assert_mentions(misuse_message(run, privacy=3.0), "privacy is 3.0", "tacit.Privacy(epsilon=")


def test_other_algorithms_keep_none():
    message = misuse_message(run, tacit.DSGT(lr=0.1))
    assert_mentions(message, "dsgt does not keep", "leave `privacy` out")
    # Without a promise they are left as they are.
    algorithm = tacit.DSGT(lr=0.1)
    assert prepare(algorithm, None, squares(), RING, 4) is algorithm
    assert prepare(PrivateSGD(lr=0.1), None, squares(), RING, 4) == PrivateSGD(lr=0.1)


def test_decor_protects_samples_only():
    assert_mentions(misuse_message(run, Decor(lr=0.1), privacy=FEW_CLIENTS), 'unit = "sample"')


def test_decor_needs_a_bound_even_without_noise():
    unbounded = Privacy(math.inf, clip=math.inf)
    assert_mentions(misuse_message(run, Decor(lr=0.1), privacy=unbounded), "clip = 1.0")


@pytest.mark.parametrize(
    "task",
    [squares(batch_size=None), with_one_start(tacit.adaptive_filtering(N, P))],
    ids=["full gradients", "stream"],
)
@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_samples_are_needed(task, kind):
    assert_mentions(
        misuse_message(run, kind(lr=0.1), task), "samples that can be drawn", "batch_size"
    )


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Privacy(3.0, delta=0.1), ["delta is 0.1", "48 samples"]),
        (Privacy(3.0, honest=7), ["honest is 7", "6 clients"]),
        (Privacy(3.0, delta=0.2, unit="client"), ["delta is 0.2", "6 clients"]),
    ],
)
def test_promises_must_fit_the_clients(promise, words):
    assert_mentions(misuse_message(run, privacy=promise), *words)


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_a_sample_that_several_clients_hold_is_refused(kind):
    """It would be in all their sums, and change the total by more than the bound."""
    own = range(SAMPLES - 1)
    indices = [[*(SAMPLES * client + k for k in own), N * SAMPLES] for client in range(N)]
    arrays = (torch.zeros(N * SAMPLES + 1, P), torch.zeros(N * SAMPLES + 1, 1))
    task = tacit.Task(
        torch.nn.Linear(P, 1),
        Parts.split(arrays, indices),
        loss=torch.nn.functional.mse_loss,
        batch_size=4,
        init="same",
    )
    assert_mentions(misuse_message(run, kind(lr=0.1), task), "several times", "to one client, once")


# --- what they are prepared with ---


def facts_of(task):
    """The facts with which an algorithm is prepared for a task and four iterations."""
    seen = []

    class Noting(PrivateSGD):
        def prepared(self, promise, facts, graph):
            seen.append(facts)
            return self

    prepare(Noting(lr=0.1), PROMISE, task, RING, 4)
    return seen[0]


def test_facts_of_a_task():
    assert facts_of(squares()) == Population(N, N * SAMPLES, N * 4, P, 4)
    # No more samples than there are.
    assert facts_of(squares(batch_size=SAMPLES)).batch == N * SAMPLES


def test_preparing_changes_the_mechanism_only():
    algorithm = PrivateSGD(lr=0.1, momentum=0.3)
    prepared = prepare(algorithm, PROMISE, squares(), RING, 7)
    assert isinstance(prepared, PrivateAlgorithm)
    assert replace(prepared, mechanism=None) == algorithm
    assert prepared.budget == prepared.mechanism.budget
    assert prepared.budget.steps == 7
    assert prepared.budget.spent(7) <= 3.0


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_noise_of_another_federation_is_refused(kind):
    prepared = prepare(kind(lr=0.1), PROMISE, squares(), RING, 4)
    assert prepare(prepared, None, squares(), RING, 9) is prepared
    words = misuse_message(prepare, prepared, None, squares(batch_size=2), RING, 4)
    assert_mentions(words, "prepared for 6 clients with 48 samples", "Give `privacy` again")


@pytest.mark.parametrize(
    ("algorithm", "promise", "change", "words"),
    [
        (PrivateSGD(lr=0.1), FEW_CLIENTS, {"clip": 447.0}, "tacit.Privacy(epsilon=…, clip=447.0)"),
        (Decor(lr=0.1), PROMISE, {"clip": 447.0}, "tacit.Privacy(epsilon=…, clip=447.0)"),
        (PrivateSGD(lr=0.1), PROMISE, {"local_steps": 2}, 'unit = "client"'),
        (Decor(lr=0.1), PROMISE, {"correlation": 0.0}, "computed for 10.0"),
    ],
)
def test_what_the_guarantee_rests_on_cannot_be_changed_after_preparing(
    algorithm, promise, change, words
):
    prepared = prepare(algorithm, promise, squares(), RING, 4)
    assert_mentions(misuse_message(replace, prepared, **change), words)
    # What the noise was not computed for is free.
    assert replace(prepared, lr=0.5).budget == prepared.budget


def test_another_bound_or_population_has_other_noise():
    mechanism = prepare(PrivateSGD(lr=0.1), PROMISE, squares(), RING, 4).mechanism
    longer = replace(mechanism, promise=replace(PROMISE, clip=447.0))
    assert longer.code.noise_deviation == pytest.approx(447 * mechanism.code.noise_deviation)
    more = replace(mechanism, facts=replace(mechanism.facts, steps=400))
    assert more.budget.noise_multiplier > mechanism.budget.noise_multiplier
    for name in ("code", "budget", "rounding"):
        with pytest.raises(ValueError, match=name):
            replace(mechanism, **{name: getattr(mechanism, name)})


def test_clients_clip_to_the_bound_that_the_noise_was_computed_for():
    """With unit = "client", what one client contributes to a total without noise."""
    promise = Privacy(math.inf, unit="client", clip=0.25)
    result = run(PrivateSGD(lr=1.0, local_steps=2), privacy=promise, steps=1)
    # N clients, each of at most C, over N.
    moved = result.theta[0] - result.setting.task.initial(0, [0])[0]
    assert 0 < float(moved.norm()) <= 0.25 * 1.001


def test_correlated_noise_belongs_to_its_graph():
    prepared = prepare(Decor(lr=0.1), PROMISE, squares(), RING, 4)
    other = Topology.complete(N).mixing("metropolis")
    assert_mentions(misuse_message(prepared.check_graph, other), "computed for", "`privacy` again")


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_noise_that_allows_no_iteration_is_refused(kind):
    little = Privacy(3.0, noise_multiplier=0.2)
    with pytest.raises(BudgetTooSmall) as problem:
        prepare(kind(lr=0.1), little, squares(), RING, 120)
    assert problem.value.exit_code == 1
    assert_mentions(str(problem.value), "noise_multiplier = 0.2 allows no iteration", "leave")


def test_a_budget_that_ends_early_is_cautioned_about():
    few = Privacy(3.0, noise_multiplier=2.0)
    algorithm = prepare(PrivateSGD(lr=0.1), few, squares(), RING, 400)
    allowed = algorithm.budget.allowed_steps
    (caution,) = algorithm.cautions(RING)
    assert 0 < allowed < 400
    assert_mentions(caution, f"allows {allowed} of 400 iterations", "raise epsilon")
    with pytest.warns(Caution, match="privacy budget"):
        result = run(privacy=few, steps=400)
    assert result.history[-1].step == allowed


# --- what it records ---


def test_records_have_nothing_computed_from_the_training_data(tmp_path):
    """Its exact loss after each iteration is not covered by ε; nor is the optimum's distance."""
    task = squares().with_optimum(torch.zeros(P, dtype=torch.float64))
    promised = run(task=task)
    for record in promised.history:
        assert record.loss is record.msd is None
        assert not any(name.startswith(("loss", "msd")) for name in record.scalars())
    assert_mentions(" ".join(Simulation(promised.setting).remarks), "no loss is recorded")
    assert_mentions(repr(promised.history), "loss not recorded")
    assert list(tacit.load(promised.save(tmp_path / "run")).history) == list(promised.history)
    # Without a promise there is nothing to keep.
    without = run(task=task, privacy=Privacy(epsilon=math.inf))
    assert without.history[-1].loss.mean > 0
    assert without.history[-1].msd > 0


def test_a_test_set_is_recorded():
    parts = [(torch.randn(8, 4), torch.arange(8) % 3) for _ in range(N)]
    test = (torch.randn(9, 4), torch.arange(9) % 3)
    task = tacit.Task(torch.nn.Linear(4, 3), parts, batch_size=4, test=test)
    record = run(task=task, gradients="auto").history[-1]
    assert record.loss.mean > 0
    assert record.accuracy is not None


@pytest.mark.parametrize("metric", ["loss.mean", "loss"])
def test_callbacks_that_would_use_the_training_loss_are_refused(metric, tmp_path):
    for callback in (
        tacit.callbacks.EarlyStopping(metric),
        tacit.callbacks.BestCheckpoint(metric, tmp_path / "best"),
    ):
        message = misuse_message(run, callbacks=[callback])
        assert_mentions(message, f"'{metric}' is not recorded", "Give the task a test set")
        run(callbacks=[callback], privacy=Privacy(epsilon=math.inf))


# --- the budget ---


def started(promise, steps=4, algorithm=None):
    prepared = prepare(algorithm or PrivateSGD(lr=0.1), promise, squares(), RING, steps)
    simulation = Simulation(Setting(prepared, squares(), RING, gradients="looped"))
    simulation.start()
    return simulation


@pytest.mark.parametrize("kind", [PrivateSGD, Decor])
def test_no_iteration_exceeds_the_budget(kind):
    simulation = started(Privacy(3.0, noise_multiplier=4.0), algorithm=kind(lr=0.1))
    allowed = simulation.allowed_steps
    assert allowed == simulation.budget.allowed_steps > 4
    for _ in range(allowed):
        simulation.step()
    assert simulation.budget.spent(simulation.t) <= 3.0
    before = simulation.state.theta.clone()
    message = misuse_message(simulation.step)
    assert_mentions(message, f"allows {allowed} iterations", "larger epsilon")
    # The model is still there.
    assert simulation.t == allowed
    assert torch.equal(simulation.state.theta, before)


def test_restoring_a_state_does_not_reset_the_budget():
    promise = Privacy(3.0, noise_multiplier=4.0)
    first = started(promise)
    allowed = first.allowed_steps
    for _ in range(3):
        first.step()
    again = started(promise)
    again.restore(first.checkpoint("mark"))
    for _ in range(allowed - 3):
        again.step()
    assert_mentions(misuse_message(again.step), "budget is spent")


def test_without_a_guarantee_there_is_no_limit():
    simulation = started(Privacy(epsilon=math.inf))
    assert simulation.allowed_steps == math.inf
    assert simulation.budget.spent(1) == math.inf
    plain = Simulation(Setting(tacit.DSGT(lr=0.1), squares(), RING, gradients="looped"))
    assert plain.budget is None
    assert plain.allowed_steps == math.inf


def test_a_run_says_what_its_guarantee_for_samples_rests_on():
    drops = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    parts = [(torch.randn(8, 4), torch.arange(8) % 3) for _ in range(N)]
    dropping = tacit.Task(drops, parts, batch_size=4, test=parts[0])
    plain = tacit.Task(drops[0], parts, batch_size=4, test=parts[0])

    def remarks(task, promise=PROMISE, precision="float32"):
        algorithm = prepare(PrivateSGD(lr=0.1), promise, task, RING, 4)
        return " ".join(Simulation(Setting(algorithm, task, RING, precision=precision)).remarks)

    assert remarks(plain) == ""
    assert "drawn by the numbers of samples" in remarks(dropping)
    assert "precision = 'bf16' does not apply" in remarks(plain, precision="bf16")
    assert remarks(dropping, FEW_CLIENTS, "bf16") == ""
    assert remarks(dropping, Privacy(epsilon=math.inf)) == ""


def test_secret_noise_is_new_in_each_run_and_forgotten():
    one, two = (run(secret_noise=True) for _ in range(2))
    assert not torch.equal(one.theta, two.theta)
    assert one.setting.prg == "secret"
    assert not one.setting.is_simulated
    assert torch.equal(run().theta, run().theta)
    message = misuse_message(run, secret_noise=True, prg="chacha20")
    assert_mentions(message, "prg and secret_noise", "Leave prg out")
