import numpy as np
import pytest
import torch

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import apply_combination
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import Unknown

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
EAVESDROPPER = Adversary.eavesdropper()
G0, G1, OWN = (Unknown("gradient", when, client) for when, client in ((0, 0), (1, 0), (0, 1)))
NOISE = Unknown("noise", 0, 0, tag="n")


def knowledge_of(*rows, adversary=None, narrow=False):
    """Client 1's knowledge if client 0 sends rows over (g0, g1, noise, gradient of client 1)."""
    sent = [torch.tensor([row], dtype=torch.float64) for row in rows]
    if narrow:  # as in a run: without later unknowns
        sent = [row[:, : int(row[0].nonzero().max()) + 1] for row in sent]
    scales = {G0: None, G1: None, NOISE: 2.0, OWN: None}
    return knowledge_over(scales, *sent, adversary=adversary or Adversary.curious(1))


def knowledge_over(scales, *sent, adversary=EAVESDROPPER):
    """Knowledge of messages over unknowns; `scales` has the standard deviations of noise."""
    messages = [
        Message(t, "mix", "x", torch.as_tensor(rows).double(), torch.arange(len(rows)))
        for t, rows in enumerate(sent)
    ]
    transcript = Transcript(clients=3, edges=[(0, 1), (1, 0)], messages=messages)
    laws = {u: tacit.Gaussian(scale) for u, scale in scales.items() if scale is not None}
    return Knowledge(SymbolicRun(transcript, list(scales), laws), adversary)


def combination(answer):
    messages = {(seen.message, seen.row): a for seen, a in answer.combination.messages}
    return messages, dict(answer.combination.own)


@pytest.mark.parametrize("narrow", [False, True])
def test_exact_as_a_difference_of_messages(narrow):
    know = knowledge_of([1.0, 0, 3, 0], [1, 2, 3, 0], narrow=narrow)
    assert len(know.basis) == 2
    answer = know.estimate(know.vector((G1, 1.0)))
    assert (answer.status, answer.variance, answer.noise) == ("exact", 0.0, ())
    messages, own = combination(answer)
    assert messages == pytest.approx({(1, 0): 0.5, (0, 0): -0.5})
    assert own == {}
    assert answer.combination.gain == pytest.approx(1.0)


def test_noisy_names_the_noise_and_its_variance():
    know = knowledge_of([1.0, 0, 2, 0], [1, 1, 0, 0])
    answer = know.estimate(know.vector((G0, 3.0)))
    assert answer.status == "noisy"
    assert answer.variance == pytest.approx(144)  # 6 · a deviation of 2
    assert dict(answer.noise) == pytest.approx({NOISE: 6.0})
    assert combination(answer)[0] == pytest.approx({(0, 0): 3.0})


def test_independent_noise_is_averaged():
    other = Unknown("noise", 1, 0, tag="n")
    know = knowledge_over({G0: None, NOISE: 1.0, other: 2.0}, [[1, 1, 0], [1, 0, 1]])
    answer = know.estimate(know.vector((G0, 1.0)))
    assert answer.variance == pytest.approx(1 / (1 / 1 + 1 / 4))  # weights by precision
    assert combination(answer)[0] == pytest.approx({(0, 0): 0.8, (0, 1): 0.2})


def test_hidden_under_other_secrets():
    know = knowledge_of([1.0, 1, 0, 0])
    for unknown in (G0, G1):
        answer = know.estimate(know.vector((unknown, 1.0)))
        assert (answer.status, answer.variance, answer.combination) == ("hidden", None, None)
    assert np.isinf(know.variances(np.eye(4)[:2])).all()
    assert know.estimate(know.vector((G0, 2.0), (G1, 2.0))).status == "exact"


def test_own_unknowns_are_subtracted():
    know = knowledge_of([1.0, 0, 0, 5])
    assert know.hidden == [G0, G1, NOISE]
    # 2·g = 2·message − 10·own, and the target contains its own gradient once.
    answer = know.estimate(know.vector((G0, 2.0), (OWN, 1.0)))
    messages, own = combination(answer)
    assert messages == pytest.approx({(0, 0): 2.0})
    assert own == pytest.approx({OWN: 9.0})
    held = {OWN: torch.tensor([10.0, -1.0])}
    sent = [Message(0, "mix", "x", torch.tensor([[50.5, -4.0]]), torch.tensor([0]))]
    transcript = Transcript(Keep(), 3, know.run.transcript.edges, 1, sent, held)
    numbers = apply_combination(answer.combination, know, transcript)
    assert numbers.tolist() == [2 * 50.5 - 90, -8 + 9]
    assert know.estimate(know.vector((OWN, 1.0))).status == "exact"
    outsider = knowledge_of([1.0, 0, 0, 5], adversary=EAVESDROPPER)
    assert outsider.estimate(outsider.vector((G0, 1.0))).status == "hidden"


def test_own_noise_is_subtracted():
    shared = Unknown("noise", 0, 0, 1, "delta")
    know = knowledge_over({G0: None, shared: 2.0}, [[1, 1]], adversary=Adversary.curious(1))
    answer = know.estimate(know.vector((G0, 1.0)))
    assert answer.status == "exact"
    sent = [Message(0, "mix", "x", torch.tensor([[7.0]]), torch.tensor([0]))]
    edges = know.run.transcript.edges
    numbers = Transcript(Keep(), 3, edges, 1, sent, {shared: torch.tensor([3.0])})
    assert apply_combination(answer.combination, know, numbers).tolist() == [4.0]


def test_without_messages_everything_is_hidden():
    know = Knowledge(run_on_symbols(tacit.DSGT(lr=0.1), RING, 2), Adversary.server())
    assert (len(know.basis), know.seen) == (0, [])
    gradient = know.vector((G0, 1.0))
    assert know.estimate(gradient).status == "hidden"
    assert know.variances(gradient[None]).tolist() == [np.inf]


def test_unknowns_and_adversaries_must_exist():
    know = knowledge_of([1.0, 0, 0, 0])
    with pytest.raises(Misuse, match=r"g\[0\]\(9\) does not occur"):
        know.vector((Unknown("gradient", 9, 0), 1.0))
    with pytest.raises(Misuse, match="corrupts client 7"):
        knowledge_of([1.0, 0, 0, 0], adversary=Adversary.curious(7))


@pytest.mark.parametrize("adversary", [Adversary.curious(1), Adversary.curious(1) | EAVESDROPPER])
def test_combinations_equal_their_targets(adversary):
    """Σ a · rows = target over all unknowns, the own ones subtracted."""
    run = run_on_symbols(tacit.LPPA(lr=0.1, fresh=True, masks="sent"), RING, 4)
    know = Knowledge(run, adversary)
    for when in range(3):
        vector = know.vector((Unknown("gradient", when, 0), 1.0))
        answer = know.estimate(vector)
        total = np.zeros(len(run.unknowns))
        for (message, row), a in answer.combination.messages:
            sent = run.transcript.messages[message].rows[row].numpy()
            total[: len(sent)] += a * sent
            assert adversary.sees(run.transcript.messages[message], run.transcript.edges)[row]
        for unknown, a in answer.combination.own:
            assert adversary.knows(unknown)
            total[run.columns[unknown]] -= a
        for unknown, a in answer.noise:
            total[run.columns[unknown]] -= a
        np.testing.assert_allclose(total, vector, atol=1e-5)
        variance = sum(a**2 * run.laws[u].variance for u, a in answer.noise)
        assert variance == pytest.approx(answer.variance, rel=1e-6)


def test_batched_and_single_answers_agree():
    run = run_on_symbols(tacit.LPPA(lr=0.1, fresh=True), RING, 5)
    know = Knowledge(run, Adversary.curious(1))
    vectors = np.stack([know.vector((u, 1.0)) for u in run.unknowns])
    single = [know.estimate(vector) for vector in vectors]
    variances = [np.inf if a.variance is None else a.variance for a in single]
    np.testing.assert_allclose(know.variances(vectors), variances, rtol=1e-9)
    assert (know.exact(vectors) == [a.status == "exact" for a in single]).all()


def test_messages_of_others_do_not_change_what_a_client_knows():
    """An audit of one client may keep only its messages."""
    algorithm = tacit.LPPA(lr=0.1, noise=tacit.Laplace(1.0))
    pair = [run_on_symbols(algorithm, RING, 5, keep) for keep in (Keep(), Keep(clients=(1,)))]
    whole, part = (Knowledge(run, Adversary.curious(1)) for run in pair)
    vectors = np.eye(len(pair[0].unknowns))
    assert len(part.basis) == len(whole.basis) > 0
    np.testing.assert_allclose(part.variances(vectors), whole.variances(vectors), rtol=1e-9)


def test_noise_in_the_target_counts():
    know = knowledge_over({G0: None, NOISE: 1.0}, [[1, 0]])
    vectors = [know.vector((G0, 1.0), (NOISE, 3.0)), know.vector((NOISE, 3.0))]
    np.testing.assert_allclose(know.variances(np.stack(vectors)), 9.0)


def test_the_best_estimate_of_a_noisy_model():
    """Each of 5 edges gives w + (z − z')/2ρ, and differences of w are known: 2/0.64/5."""
    algorithm = tacit.PDMM(rho=0.4, noise=tacit.Gaussian(1.0), solver=tacit.ExactSolver())
    know = Knowledge(run_on_symbols(algorithm, RING, 6), EAVESDROPPER)
    models = np.stack([know.pad(rows[0]) for rows in know.run.models])
    np.testing.assert_allclose(know.variances(models)[1:], 2 / 0.64 / 5, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e-7, 1.0, 1e7, 1e12])
def test_the_unit_of_masks_does_not_matter(scale):
    run = run_on_symbols(tacit.LPPA(lr=0.1, noise=tacit.Laplace(scale)), RING, 3)
    know = Knowledge(run, EAVESDROPPER)
    variance = know.variances(know.vector((Unknown("gradient", 0, 0), 1.0))[None])[0]
    assert variance == pytest.approx(4 * 2 * scale**2)


def test_very_small_noise_still_counts():
    """Large masks cancel and small own noise does not: the sum is noisy, not exact."""
    h = Unknown("gradient", 0, 1)
    small = [Unknown("noise", 0, client, tag="own") for client in (0, 1)]
    mask = Unknown("noise", 0, 0, 1, "mask")
    scales = {G0: None, h: None, small[0]: 1e-3, small[1]: 1e-3, mask: 1e6}
    know = knowledge_over(scales, [[1, 0, 1, 0, 1], [0, 1, 0, 1, -1]])
    answer = know.estimate(know.vector((G0, 1.0), (h, 1.0)))
    assert (answer.status, answer.variance) == ("noisy", pytest.approx(2e-6))
