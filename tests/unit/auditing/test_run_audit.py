"""An audit from end to end, on tasks that are small enough for quick attacks."""

import doctest
import io
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import tacit
from tacit import data, models
from tacit.auditing import adversary as adversary_module, one_run
from tacit.auditing.adversary import Adversary
from tacit.auditing.adversary_choice import default_adversaries
from tacit.auditing.attacks import input_search, reconstruction_attacks, suite
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.membership_attacks import MembershipResult
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.auditing.audit import run_audit
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.result import ASSUMPTIONS
from tacit.auditing.scoring.lower_bound import lower_bound
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.cli.audit_tables import print_audit
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.experiment import auditing
from tacit.record.transcript import Keep
from tacit.report.audit_sections import stored_audit

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=150, limit_test=120)
TEST = (DIGITS.test.x, DIGITS.test.y)
SHAPE = tuple(DIGITS.train.x.shape[1:])
LITTLE = AttackOptions(restarts=1, seconds=0.3)
DSGT, DSG = tacit.DSGT(lr=0.1), tacit.DSG(lr=0.1)
RESPONSE = tacit.DeFLVP(lr=0.1, private_variates=True)
LPPA = tacit.LPPA(lr=0.1, noise=tacit.Laplace(0.5))


def training(sizes=(1,) * 5, batch_size=None, test=TEST, **options):
    """A small perceptron on a few digits per client, by default one digit in full batches."""
    ends = np.cumsum(sizes)
    parts = [
        (DIGITS.train.x[b - n : b], DIGITS.train.y[b - n : b])
        for n, b in zip(sizes, ends, strict=True)
    ]
    module = models.build("mlp", SHAPE, 10, hidden=[16])
    return tacit.Task(module, parts, batch_size=batch_size, test=test, init="same", **options)


ONE_DIGIT, MANY_DIGITS = training(), training((30,) * 5, batch_size=2)
QUADRATIC = tacit.quadratic(torch.eye(3).repeat(5, 1, 1), torch.arange(15.0).view(5, 3))


def audited(algorithm, adversaries=None, task=QUADRATIC, graph=RING, **options):
    options = {"iterations": 3, "attacks": LITTLE, "heat_map": False, **options}
    return run_audit(Setting(algorithm, task, graph, 3), adversaries, AuditOptions(**options))


# --- Adversaries ---


@pytest.mark.parametrize(
    ("algorithm", "graph", "victim", "names"),
    [
        (DSGT, RING, 0, ["worst(1)", "curious(1,4)", "eavesdropper"]),
        (LPPA, RING, 2, ["worst(1)", "curious(1,3)", "eavesdropper"]),
        (tacit.FedAvg(lr=0.1), RING, 0, ["worst(1)", "curious(1,4)", "eavesdropper", "server"]),
        (DSGT, tacit.Topology.star(4).mixing("metropolis"), 3, ["worst(1)", "eavesdropper"]),
        (DSGT, tacit.Topology.complete(5).mixing("metropolis"), 1,
         ["worst(1)", "worst(2)", "curious(0,2,3,4)", "eavesdropper"]),
        (LPPA, tacit.Topology.directed_ring(4).mixing("sinkhorn", lazy=True), 0,
         ["worst(1)", "curious(1,3)", "eavesdropper"]),
    ],
)  # fmt: skip
def test_default_adversaries(algorithm, graph, victim, names):
    assert default_adversaries(run_on_symbols(algorithm, graph, 1), victim) == names


def test_the_worst_neighbours_are_found_and_named():
    """Two of four neighbours of a client on a circle with chords: opposite ones see everything."""
    pairs = [(i, (i + step) % 8) for i in range(8) for step in (1, 2)]
    graph = tacit.Topology.from_edges(pairs, 8).mixing("metropolis", lazy=True)
    task = tacit.quadratic(torch.eye(2).repeat(8, 1, 1), torch.ones(8, 2))
    found = audited(DSG, ["worst(2)"], task, graph, attacks=False)
    (result,) = found.results
    assert result.adversary == Adversary.curious(1, 6)
    assert result.verdicts[0].summary.startswith("curious(1,6) computes 3 of 3 gradients")
    scope = "the worst of all 6 coalitions of 2 neighbours of client 0"
    assert found.remarks == [f"curious(1,6) is {scope}"]
    with pytest.raises(Misuse, match=r"no coalition of 5 neighbours.*size from 1 to 4"):
        audited(DSG, ["worst(5)"], task, graph)


def test_default_adversaries_are_used_if_none_is_named():
    found = audited(tacit.FedAvg(lr=0.1))
    names = ["curious(1)", "curious(1,4)", "eavesdropper", "server"]
    assert [str(result.adversary) for result in found.results] == names
    headlines = [result.verdicts[0].headline for result in found.results]
    # Clients learn sums, the others each gradient.
    assert headlines == ["partly exposed", "partly exposed", "exposed", "exposed"]


def test_several_adversaries_and_victims():
    found = audited(DSGT, ["curious(1)", Adversary.eavesdropper()], victims=[0, 1, 2])
    curious, eavesdropper = found.results
    assert [one.victim for one in curious.leakage] == [0, 2]  # client 1 is corrupt
    assert [one.victim for one in curious.ledgers] == [0, 2]
    assert [one.victim for one in eavesdropper.leakage] == [0, 1, 2]
    plain = found.as_dict()["adversaries"]
    assert [verdict["victim"] for verdict in plain[0]["verdict"]] == [0, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"adversaries": ["curious(0)"]}, "All victims.*are corrupt.*honest"),
        ({"adversaries": ["curious(0,1)"], "victims": [0, 1]}, "All victims.*are corrupt"),
        ({"victims": [5]}, "no client 5.*0 to 4"),
        ({"victims": [-1]}, "no client -1"),
        ({"victims": [True]}, "no client True"),
        ({"victims": []}, "No victim"),
        ({"adversaries": ["curious(5)"]}, "client 5.*0 to 4"),
        ({"adversaries": ["server"]}, "server sees no message.*neighbour"),
        ({"iterations": 0}, "iterations is 0"),
        ({"delta": 0.0}, "delta is 0.0"),
    ],
)
def test_misuse(options, words):
    with pytest.raises(Misuse, match=words):
        audited(DSGT, **options)


# --- Transcripts ---


def recorded(algorithm, task, steps=3, **keep):
    keep = Keep(**keep) if keep else False
    return tacit.run(task, algorithm, RING, steps=steps, seed=3, transcript=keep)


@pytest.mark.slow
def test_an_audit_is_the_same_with_and_without_a_transcript():
    """Without a transcript the run is repeated: the same setting sends the same messages."""
    options = {"iterations": 3, "attacks": LITTLE, "heat_map": False}
    first, without = (
        tacit.audit(recorded(LPPA, ONE_DIGIT, **keep), "curious(1)", **options)
        for keep in ({"insides": (1,)}, {})
    )
    again = audited(LPPA, ["curious(1)"], ONE_DIGIT)
    (result,) = first.results
    assert str(result.adversary) == "curious(1)"
    kinds = [attack.kind for attack in result.reconstructions]
    assert kinds == ["noisy gradient", "difference", "group", "sum", "approximate gradient"]
    for attack in result.reconstructions:
        # One digit of each client, although each uses it in every iteration.
        clients = {term.client for term in attack.evidence[0].terms}
        assert attack.truth.shape[1] == attack.guess.shape[1] == len(clients)
    for other in (without, again):
        (twin,) = other.results
        assert [one.as_dict() for one in twin.leakage] == [one.as_dict() for one in result.leakage]
        assert [one.as_dict() for one in twin.ledgers] == [one.as_dict() for one in result.ledgers]
        for mine, its in zip(result.reconstructions, twin.reconstructions, strict=True):
            for a, b in zip(mine.evidence, its.evidence, strict=True):
                assert str(a) == str(b)
                assert torch.equal(a.values, b.values)
                assert torch.equal(a.points, b.points)


@pytest.mark.parametrize("keep", [{"insides": (1,)}, {"insides": (1,), "ticks": (0, 2)}])
def test_a_transcript_with_too_few_iterations_is_refused(keep):
    run = recorded(DSGT, QUADRATIC, steps=2 if "ticks" not in keep else 6, **keep)
    assert tacit.audit(run, "curious(1)", iterations=2, heat_map=False).iterations == 2
    with pytest.raises(Misuse, match=r"3 iterations, but"):
        tacit.audit(run, "curious(1)", iterations=3)


def test_a_transcript_of_another_algorithm_is_refused():
    other = recorded(tacit.PSGT(lr=0.1), ONE_DIGIT, insides=(1, 4)).transcript
    with pytest.raises(Misuse, match="other messages"):
        audited(DSG, ["curious(1,4)"], ONE_DIGIT, transcript=other)


def test_the_state_of_corrupt_clients_must_be_recorded():
    run = recorded(LPPA, ONE_DIGIT, ticks=(0, 3))
    with pytest.raises(Misuse, match="insides"):
        tacit.audit(run, "curious(1)", iterations=3, attacks=LITTLE)
    # By default only adversaries that the transcript allows are audited.
    found = tacit.audit(run, iterations=3, attacks=False)
    assert [str(result.adversary) for result in found.results] == ["eavesdropper"]
    skipped = [note.split(" learns")[0] for note in found.notes if "learns" in note]
    assert skipped == ["what curious(1)", "what curious(1,4)"]


@pytest.mark.parametrize("keep", [{"tags": ("theta",)}, {"clients": (0,)}, {"ticks": (2, 3)}])
def test_the_bound_covers_all_messages_and_not_only_recorded_ones(keep):
    algorithm = tacit.LPPA(lr=0.1, noise=tacit.Laplace(0.5), fresh=True)
    task = QUADRATIC.clipped(1.0, "l1")
    whole = audited(algorithm, ["eavesdropper"], task, heat_map=True)
    part = tacit.audit(recorded(algorithm, task, **keep), "eavesdropper", iterations=3)
    assert part.results[0].ledgers[0].as_dict() == whole.results[0].ledgers[0].as_dict()
    assert part.exposure.as_dict() == whole.exposure.as_dict()
    assert any("did not keep" in note for note in part.notes)
    assert not any("did not keep" in note for note in whole.notes)
    kept = tacit.audit(recorded(algorithm, task, ticks=(0, 20)), "eavesdropper", iterations=3)
    assert not any("did not keep" in note for note in kept.notes)


# --- Attacks ---


class WrongTruth(Truth):
    """Claims that clients trained on the negatives and on other classes."""

    def batch(self, client, number):
        x, y = super().batch(client, number)
        return 1 - x, (y + 1) % 10


def test_the_truth_changes_scores_but_no_guess(monkeypatch):
    right = audited(DSGT, ["curious(1,4)"], ONE_DIGIT)
    monkeypatch.setattr(suite, "Truth", WrongTruth)
    wrong = audited(DSGT, ["curious(1,4)"], ONE_DIGIT)
    right, wrong = (audit.results[0].reconstructions for audit in (right, wrong))
    assert [mine.kind for mine in right] == ["gradient", "difference"]
    for mine, its in zip(right, wrong, strict=True):
        assert torch.equal(mine.guess, its.guess)
        assert mine.method == its.method == "exact shortcut"
        assert mine.assumptions == its.assumptions
        assert mine.score.reading == "recovered"
        assert its.score.reading != "recovered"
        assert mine.score.attack.mse < 1e-6 < 0.1 < its.score.attack.mse
        torch.testing.assert_close(mine.truth, DIGITS.train.x[None, :1])


def test_the_search_does_not_see_the_truth(monkeypatch):
    """L-BFGS on a noisy gradient, without a time limit that matters."""
    effort = AttackOptions(restarts=1, seconds=600)
    algorithm = tacit.DPDSGT(lr=0.1, noise=tacit.Laplace(0.01), inject="every")
    monkeypatch.setattr(input_search, "LBFGS", lambda: LBFGS(iterations=5))
    right = audited(algorithm, ["curious(1,4)"], ONE_DIGIT, attacks=effort, iterations=1)
    monkeypatch.setattr(suite, "Truth", WrongTruth)
    wrong = audited(algorithm, ["curious(1,4)"], ONE_DIGIT, attacks=effort, iterations=1)
    (mine,), (its,) = right.results[0].reconstructions, wrong.results[0].reconstructions
    assert mine.kind == "noisy gradient"
    assert "L-BFGS" in mine.method
    assert torch.equal(mine.guess, its.guess)
    assert mine.score.attack.mse != its.score.attack.mse
    assert mine.score.as_dict()["label_accuracy"] != its.score.as_dict()["label_accuracy"]


@pytest.mark.parametrize(
    ("clip", "options"),
    [
        (None, {"deviation": 1.0, "off_diagonal": 1.0}),
        # Of clipped gradients only the direction is known.
        (0.1, {"deviation": 0.1, "off_diagonal": 0.1, "mean": 3.0}),
    ],
)
def test_a_random_matrix_does_not_hide_a_digit(monkeypatch, clip, options):
    """Although its product may be off by more than the gradient itself."""
    task = ONE_DIGIT if clip is None else ONE_DIGIT.clipped(clip)
    effort = AttackOptions(restarts=1, seconds=600)
    monkeypatch.setattr(input_search, "SignedAdam", lambda: SignedAdam(iterations=300))
    algorithm = tacit.DSGRMS(lr=0.1, matrix=tacit.MatrixStep(**options), weight_decay=0.01)
    found = audited(algorithm, ["curious(1)+theta0"], task, attacks=effort, iterations=2)
    ((attack,), (verdict,)) = found.results[0].reconstructions, found.results[0].verdicts
    assert (attack.kind, attack.score.reading) == ("randomized gradient", "recovered")
    assert any("randomized gradient (likelihood" in line for line in verdict.measured)
    assert "the distribution of M is known" in attack.assumptions
    assert json.dumps(attack.as_dict())
    assert pickle.loads(pickle.dumps(attack.evidence[0])).step.tag == "M"


@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_labels_behind_a_matrix_close_to_the_identity(monkeypatch, name):
    """The bias has them nearly exactly and sums over rows do not; the likelihood decides."""
    monkeypatch.setattr(input_search, "SignedAdam", lambda: SignedAdam(iterations=200))
    task = training((6,) * 5)
    if name == "logistic":
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        parts = list(zip(DIGITS.train.x[:30].split(6), DIGITS.train.y[:30].split(6), strict=True))
        task = tacit.Task(module, parts, test=TEST, init="same")
    options = {"attacks": AttackOptions(restarts=1, seconds=600), "iterations": 2}
    found = audited(tacit.DSGRMS(lr=0.1), ["curious(1)+theta0"], task, **options)
    (attack,) = found.results[0].reconstructions
    assert attack.labels.sort(1).values.tolist() == [sorted(DIGITS.train.y[:6].tolist())]
    assert attack.score.attack.ssim > attack.score.same_class.ssim + 0.2


def test_a_randomized_gradient_is_not_taken_for_the_exact_one():
    """What is known of the same gradient is inverted once for all, but not across kinds."""
    matrix = tacit.MatrixStep(deviation=1.0, off_diagonal=1.0)
    algorithms = tacit.DSG(lr=0.1), tacit.DSGRMS(lr=0.1, matrix=matrix)
    exact, noisy = (
        audited(one, ["curious(1)+theta0"], ONE_DIGIT, iterations=2).results[0].reconstructions
        for one in algorithms
    )
    pieces = exact[0].evidence[0], noisy[0].evidence[0]
    assert pieces[0].terms == pieces[1].terms
    attacks = reconstruction_attacks.ReconstructionAttacks(Truth(ONE_DIGIT, 3), LITTLE, print)
    methods = [attacks.run([piece])[0].method for piece in pieces]
    assert methods == ["exact shortcut", "likelihood, total variation, signed Adam"]


def test_exact_evidence_is_inverted_once_for_all_adversaries(monkeypatch):
    inverted = []
    attacks = reconstruction_attacks.ReconstructionAttacks
    invert = attacks._invert

    def counting(self, group, single):
        inverted.append((group[0].kind, tuple(piece.victim for piece in group)))
        return invert(self, group, single)

    monkeypatch.setattr(attacks, "_invert", counting)
    adversaries = ["curious(1)", "curious(1,4)", "curious(1,4,2)", "eavesdropper"]
    found = audited(LPPA, adversaries, ONE_DIGIT)
    neighbour, two, three, eavesdropper = found.results
    assert inverted.count(("gradient", (0,))) == 1
    assert inverted.count(("difference", (0,))) == 1
    assert inverted.count(("noisy gradient", (0,))) == 2  # with different noise
    for a, b in zip(three.reconstructions[:2], two.reconstructions[:2], strict=True):
        assert a.guess is b.guess
        assert a.evidence is not b.evidence
    assert two.reconstructions[0].score.reading == "recovered"
    near, far = neighbour.reconstructions[0], eavesdropper.reconstructions[0]
    assert near.guess is not far.guess
    assert near.evidence[0].deviation < far.evidence[0].deviation


def test_several_victims_are_inverted_together():
    found = audited(DSGT, ["eavesdropper"], ONE_DIGIT, victims=[2, 0], iterations=2)
    attacks = {attack.kind: attack for attack in found.results[0].reconstructions}
    gradient = attacks["gradient"]
    assert [one.victim for one in gradient.evidence] == [2, 0]
    torch.testing.assert_close(gradient.guess[:, 0], DIGITS.train.x[[2, 0]], rtol=0, atol=1e-3)
    lines = found.results[0].verdicts[0].measured
    assert any(line.startswith("inversion of a gradient (exact shortcut)") for line in lines)
    assert all("recovered" in line for line in lines if "of a gradient" in line)


def test_clients_with_batches_of_different_sizes():
    """They are not inverted as one batch, and their sum is not inverted."""
    task = training((1, 2, 3, 1, 1))
    found = audited(DSGT, ["eavesdropper"], task, victims=[0, 1, 3], iterations=1)
    attacks = found.results[0].reconstructions
    assert [attack.kind for attack in attacks] == ["gradient", "gradient"]
    assert [[one.victim for one in attack.evidence] for attack in attacks] == [[0, 3], [1]]
    assert [attack.truth.shape[1] for attack in attacks] == [1, 2]
    assert any("batches of different sizes" in note for note in found.notes)


def test_membership_inference_by_models_and_gradients():
    final = torch.zeros(5, MANY_DIGITS.parameters)
    found = audited(LPPA, ["curious(1,4)"], MANY_DIGITS, final=final)
    members = {one.score: one for one in found.results[0].memberships}
    assert list(members) == ["loss", "gradient norm", "likelihood ratio", "RMIA"]
    assert members["loss"].roc.auc == pytest.approx(0.5)  # a model of zeros separates nothing
    assert any("the victim's trained model" in words for words in members["loss"].assumptions)
    assert any("shadow models" in words for words in members["likelihood ratio"].assumptions)
    early = audited(LPPA, ["curious(1,4)"], MANY_DIGITS)
    assert "early in training" in " ".join(early.results[0].memberships[0].assumptions)
    lines = early.results[0].verdicts[0].measured
    assert sum(line.startswith("membership by") for line in lines) == 4


@pytest.mark.parametrize("clip", [None, 0.5])
def test_membership_by_least_squares_is_without_errors_where_gradients_are_exact(monkeypatch, clip):
    attacks = reconstruction_attacks.ReconstructionAttacks
    monkeypatch.setattr(attacks, "run", lambda self, found: [])
    task = training((30,) * 5, batch_size=10)
    task = task if clip is None else task.clipped(clip)
    found = audited(DSG, ["curious(1,4)"], task, attacks=AttackOptions(seconds=600))
    members = {one.score: one for one in found.results[0].memberships}
    assert members["least squares"].roc.auc == 1
    assert members["gradient cosine"].roc.auc < 0.95
    assert not members["least squares"].cut_short
    words = " ".join(members["least squares"].assumptions)
    assert "3 of 3 used" in words
    assert ("clipped" in words) == (clip is not None)
    assert "means over them" in " ".join(members["loss"].assumptions)  # several models


@pytest.mark.slow
def test_membership_by_combinations_with_other_clients_and_by_noise():
    """What is not known exactly of the victim alone is still used."""
    task = training((30,) * 5, batch_size=10)
    options = AttackOptions(restarts=1, seconds=1)
    fresh = replace(LPPA, fresh=True)
    found = audited(fresh, ["curious(1)"], task, attacks=options, iterations=4)
    scores = [one for one in found.results[0].memberships if one.score == "least squares"]
    assert len(scores) >= 1
    words = " ".join(word for one in scores for word in one.assumptions)
    assert "gradients of the victim and others" in words
    assert "modelled by the candidates" in words


def test_an_attack_that_was_cut_short_says_so():
    hurried = AttackOptions(restarts=1, seconds=1e-3)
    found = audited(DSG, ["curious(1,4)"], training((30,) * 5, batch_size=10), attacks=hurried)
    (result,) = found.results
    cut = {one.score: one.cut_short for one in result.memberships}
    assert cut == {
        "loss": False,
        "gradient norm": False,
        "likelihood ratio": True,
        "RMIA": True,
        "gradient cosine": False,
        "least squares": True,
    }
    assert [one.as_dict()["cut_short"] for one in result.memberships] == list(cut.values())
    lines = [line for line in result.verdicts[0].measured if line.startswith("membership")]
    assert [line.endswith("(stopped by the time budget)") for line in lines] == list(cut.values())
    words = " ".join(result.memberships[-1].assumptions)
    assert "stopped by the time budget after 1 of 3" in words
    stopped = sum(one.cut_short for one in (*result.memberships, *result.reconstructions))
    assert found.cut_short == stopped >= 3
    console = Console(width=200, file=io.StringIO())
    print_audit(found, console)
    assert f"{stopped} attacks were stopped by the time budget" in console.file.getvalue()


def test_notes_give_the_reason_if_nothing_is_measured():
    assert audited(DSGT, ["eavesdropper"]).notes == [
        "inversion needs a model that classifies inputs; this task has a loss of its own"
    ]
    assert audited(DSGT, ["eavesdropper"], attacks=False).notes == []
    few = audited(DSG, ["eavesdropper"], ONE_DIGIT, iterations=1)
    assert few.notes == [
        "client 0 has too few samples of its own for membership inference",
        "the group that eavesdropper has of client 0: where its gradients were taken is not known",
    ]
    assert few.results[0].reconstructions == []


def test_tasks_that_are_not_attacked():
    y = DIGITS.train.y
    keep = TEST[1] != int(y[3])
    lacking = training(test=(TEST[0][keep], TEST[1][keep]))
    found = audited(DSGT, ["eavesdropper"], lacking)
    assert found.notes == [f"the public data to compare with have no sample of class {int(y[3])}"]
    assert found.results[0].reconstructions == []


# --- Statements ---


@pytest.mark.parametrize(
    ("algorithm", "adversary", "headline", "words"),
    [
        (DSGT, "curious(1)", "exposed", "computes 2 of 4 gradients of client 0 exactly"),
        (LPPA, "curious(1)", "partly exposed",
         "1 of 3 gradient differences of client 0 exactly; gradients only with noise"),
        (replace(LPPA, fresh=True), "curious(1)", "partly exposed",
         "sum of the gradients of client 0 and 3 other clients"),
        (tacit.DPDSGT(lr=0.1, inject="every"), "curious(1)", "noisy",
         "exactly; gradients only with noise"),
        (DSG, "curious(1)", "exposed", "computes 1 of 3 gradients of client 0 exactly"),
        (tacit.DSGRMS(lr=0.1), "curious(1)", "partly exposed", "knows the output of M"),
    ],
)  # fmt: skip
def test_headlines(algorithm, adversary, headline, words):
    found = audited(algorithm, [adversary])
    verdict = found.results[0].verdicts[0]
    assert verdict.headline == headline
    assert words in verdict.summary
    assert verdict.summary.startswith(adversary)
    nouns = {statement.split(":")[0] for statement in verdict.proved}
    assert nouns >= {"gradients", "gradient differences", "models"}
    assert verdict.bounded[0].startswith("no differential-privacy guarantee for everything that")


@pytest.mark.slow
def test_an_audit_is_plain_values():
    found = audited(LPPA, None, MANY_DIGITS.clipped(1.0, "l1"), victims=[0, 2], heat_map=True)
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    facts = [plain[key] for key in ("algorithm", "clients", "iterations", "seed")]
    assert facts == ["lppa", 5, 3, 3]
    assert plain["assumptions"] == list(ASSUMPTIONS)
    assert len(plain["exposure"]["learns"]) == 5
    names = [result["adversary"] for result in plain["adversaries"]]
    assert names == ["curious(1)", "curious(1,4)", "eavesdropper"]
    first = plain["adversaries"][0]
    assert [verdict["victim"] for verdict in first["verdict"]] == [0, 2]
    assert first["bounded"][0]["epsilon"] is None
    assert first["bounded"][0]["one_message_alone"]["epsilon"] == pytest.approx(2 * 1.0 / 0.5)
    assert "for comparison" in first["verdict"][0]["bounded"][1]
    assert first["proved"][0]["difference"]["status"][0] == "exact"
    inversion = first["measured"]["inversion"][0]
    assert inversion["victims"] == [0, 2]
    assert set(inversion["score"]) >= {"attack", "prior_mean", "same_class", "reading"}
    assert inversion["assumptions"]
    assert first["measured"]["membership"]


def test_an_attack_that_contradicts_the_bound_is_called_a_defect():
    result = audited(DSGT, ["eavesdropper"]).results[0]
    inside, outside = np.arange(200.0) + 1000, np.arange(200.0)
    lower = lower_bound(inside, outside, 1e-5)
    assert lower.epsilon > 2

    def measured(epsilon, comparable=True, delta=0.0):
        member = MembershipResult(
            0, "loss", Roc.from_scores(inside, outside), lower, [], comparable
        )
        bound = Bound(epsilon, delta, "by assumption")
        ledger = Ledger(0, "eavesdropper", "everything", bound, 1e-5)
        return replace(result, ledgers=[ledger], memberships=[member]).verdicts[0].measured[0]

    assert "a defect of the analysis" in measured(0.5)
    for quiet in (
        measured(50.0),
        measured(math.inf),
        measured(0.5, comparable=False),
        measured(0.5, delta=0.1),
    ):
        assert "defect" not in quiet
        assert f"ε ≥ {lower.epsilon:.2g}" in quiet


NOISY = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(0.5))
FEW_CANARIES = replace(LITTLE, canary_trials=4000)


def test_client_canaries_are_measured_beside_the_ledger():
    calls = []
    found = audited(
        NOISY, ["curious(1)", "eavesdropper"], QUADRATIC.clipped(1.0), attacks=FEW_CANARIES,
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    for result in found.results:
        (canaries,), (verdict,), (ledger,) = result.canaries, result.verdicts, result.ledgers
        assert canaries.upper == ledger.upper
        assert 0.3 * ledger.upper.epsilon < canaries.lower.epsilon < ledger.upper.epsilon
        assert verdict.measured[0].startswith("client canaries: ε ≥ ")
        assert f"the ledger proves ε ≤ {ledger.upper.epsilon:.3g}" in verdict.measured[0]
        plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
        (one,) = plain["measured"]["client_canaries"]
        assert (one["unit"], one["trials"], one["width"]) == ("client", 4000, 2)
        assert one["epsilon_at_least"] == canaries.lower.epsilon
    # Both adversaries of the ledger see the same messages: they are simulated once.
    assert calls.count(("guessing canaries of client 0", 4000, 4000)) == 1
    assert [result.canaries[0].adversary for result in found.results] == [
        "curious(1)+eavesdropper+theta0",
        "eavesdropper+theta0",
    ]
    section = stored_audit(found).sections["Audit: what is bounded"]
    assert "Client canaries" in section
    assert "consistent" in section
    assert "defect" not in section


def test_canaries_above_the_bound_are_called_a_defect():
    found = audited(NOISY, ["eavesdropper"], QUADRATIC.clipped(1.0), attacks=FEW_CANARIES)
    (result,) = found.results
    claimed = Bound(0.01, 1e-5, "by assumption")
    wrong = replace(result, canaries=[replace(result.canaries[0], upper=claimed)])
    assert "a defect of the analysis" in wrong.verdicts[0].measured[0]
    page = stored_audit(replace(found, results=[wrong])).sections["Audit: what is bounded"]
    assert "a defect of the analysis" in page


@pytest.mark.parametrize(
    ("algorithm", "task", "attacks", "note"),
    [
        (NOISY, QUADRATIC.clipped(1.0), False, None),
        (NOISY, QUADRATIC.clipped(1.0), replace(LITTLE, canary_trials=0), None),
        (NOISY, QUADRATIC, FEW_CANARIES, None),
        (RESPONSE, QUADRATIC, FEW_CANARIES, "gradients are not clipped"),
        (RESPONSE, QUADRATIC.clipped(1.0), FEW_CANARIES, "the non-linear step"),
    ],
)
def test_canaries_that_are_not_measured(algorithm, task, attacks, note):
    found = audited(algorithm, ["eavesdropper"], task, attacks=attacks)
    assert found.results[0].canaries == []
    notes = [text for text in found.notes if "canaries" in text]
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_large_runs_have_no_heat_map_by_default(monkeypatch):
    setting, one = Setting(DSG, QUADRATIC, RING), AuditOptions(iterations=1)
    assert run_audit(setting, ["eavesdropper"], one).exposure is not None
    monkeypatch.setattr(one_run, "MAX_HEAT_MAP", 4)
    assert run_audit(setting, ["eavesdropper"], one).exposure is None
    found = run_audit(setting, ["eavesdropper"], replace(one, heat_map=True))
    assert found.exposure.levels.shape == (5, 5)


def test_progress_is_reported():
    calls = []
    audited(DSGT, ["eavesdropper"], progress=lambda *call: calls.append(call), heat_map=True)
    assert ("recording messages", 3, 3) in calls
    assert ("computing what eavesdropper knows", 0, 1) in calls
    assert ("computing exposure", 5, 5) in calls


@pytest.mark.parametrize("module", [adversary_module, auditing])
def test_examples_in_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_sample_canaries_are_measured_on_request():
    options = replace(LITTLE, canary_trials=0, sample_canaries=60)
    found = audited(DSG, ["curious(1)", "eavesdropper"], MANY_DIGITS, attacks=options)
    for result in found.results:
        (canaries,), (verdict,) = result.canaries_of("sample"), result.verdicts
        assert (canaries.lower.coins, canaries.iterations) == (60, 3)
        assert str(canaries) in verdict.measured
        (plain,) = result.as_dict()["measured"]["sample_canaries"]
        assert plain["unit"] == "sample"
    assert audited(DSG, ["curious(1)"], MANY_DIGITS).results[0].canaries_of("sample") == []
    # A task without labels has none, and the audit says why.
    without = audited(DSG, ["curious(1)"], QUADRATIC, attacks=options)
    assert without.results[0].canaries_of("sample") == []
    assert any(note.startswith("sample canaries of client 0") for note in without.notes)


def test_the_first_sentence_is_about_those_for_whom_it_is_easiest():
    found = audited(DSG, ["curious(1,4)", "eavesdropper", "curious(1)"], ONE_DIGIT)
    assert found.summary == "One client can reconstruct training data of client 0."
    noisy = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
    clipped = training().clipped(1.0)
    options = {"attacks": False, "adversaries": ["curious(1)"], "task": clipped}
    assert audited(noisy, **options).summary.endswith("for the first 3 iterations.")
    whole = audited(noisy, steps=5000, **options).summary
    assert whole.endswith("for the whole run of 5,000 iterations.")
