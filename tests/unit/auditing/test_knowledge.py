import numpy as np
import pytest
import torch

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import applied
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import Unknown

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
G0, G1, NOISE, OWN = (
    Unknown("gradient", 0, 0),
    Unknown("gradient", 1, 0),
    Unknown("noise", 0, 0, tag="n"),
    Unknown("gradient", 0, 1),
)


def told(*rows, adversary=None, narrow=False):
    """Client 1's knowledge when client 0 says rows over (g0, g1, noise, own gradient), one message each."""
    said = [torch.tensor([row], dtype=torch.float64) for row in rows]
    if narrow:  # as in a run: without the unknowns that come later
        said = [row[:, : int(row[0].nonzero().max()) + 1] for row in said]
    messages = [Message(t, "mix", "x", row, torch.tensor([0])) for t, row in enumerate(said)]
    transcript = Transcript(clients=2, edges=[(0, 1), (1, 0)], steps=len(rows), messages=messages)
    run = SymbolicRun(transcript, [G0, G1, NOISE, OWN], {NOISE: tacit.Gaussian(2.0)}, [], {}, {})
    return Knowledge(run, adversary or Adversary.curious(1))


def combination(answer):
    messages = {(seen.message, seen.row): a for seen, a in answer.combination.messages}
    return messages, dict(answer.combination.own)


@pytest.mark.parametrize("narrow", [False, True])
def test_exact_by_taking_one_message_from_another(narrow):
    know = told([1.0, 0, 3, 0], [1, 2, 3, 0], narrow=narrow)
    assert know.rank == 2
    answer = know.ask(know.vector((G1, 1.0)))
    assert (answer.status, answer.variance, answer.noise) == ("exact", 0.0, ())
    messages, own = combination(answer)
    assert messages == pytest.approx({(1, 0): 0.5, (0, 0): -0.5})
    assert own == {}
    assert answer.combination.gain == pytest.approx(1.0)


def test_noisy_is_the_variance_of_what_is_left_and_names_it():
    know = told([1.0, 0, 2, 0], [1, 1, 0, 0])
    answer = know.ask(know.vector((G0, 3.0)))
    assert answer.status == "noisy"
    assert answer.variance == pytest.approx(144)  # 6 · a deviation of 2
    assert dict(answer.noise) == pytest.approx({NOISE: 6.0})
    assert combination(answer)[0] == pytest.approx({(0, 0): 3.0})


def test_two_looks_at_different_noise_are_averaged():
    other = Unknown("noise", 1, 0, tag="n")
    rows = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    message = Message(1, "mix", "x", rows, torch.tensor([0, 0]))
    transcript = Transcript(clients=2, edges=[(0, 1)], steps=1, messages=[message])
    laws = {NOISE: tacit.Gaussian(1.0), other: tacit.Gaussian(2.0)}
    run = SymbolicRun(transcript, [G0, NOISE, other], laws, [], {}, {})
    know = Knowledge(run, Adversary.eavesdropper())
    answer = know.ask(know.vector((G0, 1.0)))
    assert answer.variance == pytest.approx(1 / (1 / 1 + 1 / 4))  # weights by precision
    assert combination(answer)[0] == pytest.approx({(0, 0): 0.8, (0, 1): 0.2})


def test_hidden_is_what_other_secrets_cover():
    know = told([1.0, 1, 0, 0])
    for unknown in (G0, G1):
        answer = know.ask(know.vector((unknown, 1.0)))
        assert (answer.status, answer.variance, answer.combination) == ("hidden", None, None)
    assert np.isinf(know.variances(np.eye(4)[:2])).all()
    assert know.ask(know.vector((G0, 2.0), (G1, 2.0))).status == "exact"


def test_what_one_has_oneself_is_taken_away():
    know = told([1.0, 0, 0, 5])
    assert know.hidden == [G0, G1, NOISE]
    answer = know.ask(
        know.vector((G0, 2.0), (OWN, 1.0))
    )  # 2·g = 2·message − 10·own, plus the own one asked for
    messages, own = combination(answer)
    assert messages == pytest.approx({(0, 0): 2.0})
    assert own == pytest.approx({OWN: 9.0})
    held = {OWN: torch.tensor([10.0, -1.0])}
    said = [Message(0, "mix", "x", torch.tensor([[50.5, -4.0]]), torch.tensor([0]))]
    numbers = applied(
        answer.combination, know, Transcript(Keep(), 2, know.run.transcript.edges, 1, said, held)
    )
    assert numbers.tolist() == [2 * 50.5 - 90, -8 + 9]
    assert know.ask(know.vector((OWN, 1.0))).status == "exact"
    outsider = told([1.0, 0, 0, 5], adversary=Adversary.eavesdropper())
    assert outsider.ask(outsider.vector((G0, 1.0))).status == "hidden"


def test_own_noise_is_taken_away():
    run = SymbolicRun(
        Transcript(
            clients=2,
            edges=[(0, 1)],
            messages=[
                Message(0, "mix", "x", torch.tensor([[1.0, 1.0]]).double(), torch.tensor([0]))
            ],
        ),
        [G0, shared := Unknown("noise", 0, 0, 1, "delta")],
        {shared: tacit.Gaussian(2.0)},
        [],
        {},
        {},
    )
    know = Knowledge(run, Adversary.curious(1))
    answer = know.ask(know.vector((G0, 1.0)))
    assert answer.status == "exact"
    said = [Message(0, "mix", "x", torch.tensor([[7.0]]), torch.tensor([0]))]
    numbers = Transcript(Keep(), 2, [(0, 1)], 1, said, {shared: torch.tensor([3.0])})
    assert applied(answer.combination, know, numbers).tolist() == [4.0]  # g + δ is what was said


def test_silence_tells_nothing():
    know = Knowledge(run_on_symbols(tacit.DSGT(lr=0.1), RING, 2), Adversary.server())
    assert (know.rank, know.seen) == (0, [])
    gradient = know.vector((G0, 1.0))
    assert know.ask(gradient).status == "hidden"
    assert know.variances(gradient[None]).tolist() == [np.inf]


def test_what_is_asked_must_occur_and_who_asks_must_be_there():
    know = told([1.0, 0, 0, 0])
    with pytest.raises(Misuse, match=r"g\[0\]\(9\) does not occur"):
        know.vector((Unknown("gradient", 9, 0), 1.0))
    with pytest.raises(Misuse, match="corrupts client 7"):
        told([1.0, 0, 0, 0], adversary=Adversary.curious(7))


@pytest.mark.parametrize(
    "adversary", [Adversary.curious(1), Adversary.curious(1) | Adversary.eavesdropper()]
)
def test_every_combination_gives_what_it_says(adversary):
    """Σ a · rows = target over all unknowns: hidden ones by algebra, own ones by what is taken away."""
    run = run_on_symbols(tacit.LPPA(lr=0.1, fresh=True, masks="sent"), RING, 4)
    know = Knowledge(run, adversary)
    for when in range(3):
        vector = know.vector((Unknown("gradient", when, 0), 1.0))
        answer = know.ask(vector)
        total = np.zeros(len(run.unknowns))
        for (message, row), a in answer.combination.messages:
            said = run.transcript.messages[message].rows[row].numpy()
            total[: len(said)] += a * said
            assert adversary.sees(run.transcript.messages[message], run.transcript.edges)[row]
        for unknown, a in answer.combination.own:
            assert adversary.knows(unknown)
            total[run.places[unknown]] -= a
        for unknown, a in answer.noise:
            total[run.places[unknown]] -= a
        np.testing.assert_allclose(total, vector, atol=1e-5)
        assert sum(a**2 * run.laws[u].variance for u, a in answer.noise) == pytest.approx(
            answer.variance, rel=1e-6
        )


def test_many_questions_at_once_have_the_answers_of_one_at_a_time():
    run = run_on_symbols(tacit.LPPA(lr=0.1, fresh=True), RING, 5)
    know = Knowledge(run, Adversary.curious(1))
    vectors = np.stack([know.vector((u, 1.0)) for u in run.unknowns])
    single = [know.ask(vector) for vector in vectors]
    variances = [np.inf if a.variance is None else a.variance for a in single]
    np.testing.assert_allclose(know.variances(vectors), variances, rtol=1e-9)
    assert (know.exact(vectors) == [a.status == "exact" for a in single]).all()


def test_what_a_client_neither_hears_nor_says_does_not_change_what_it_knows():
    """The audit of one client may keep its messages only."""
    algorithm = tacit.LPPA(lr=0.1, noise=tacit.Laplace(1.0))
    pair = [run_on_symbols(algorithm, RING, 5, keep) for keep in (Keep(), Keep(clients=(1,)))]
    whole, part = (Knowledge(run, Adversary.curious(1)) for run in pair)
    vectors = np.eye(len(pair[0].unknowns))
    assert part.rank == whole.rank > 0
    np.testing.assert_allclose(part.variances(vectors), whole.variances(vectors), rtol=1e-9)


def test_noise_in_the_target_is_part_of_what_is_asked():
    g, n = Unknown("gradient", 0, 0), Unknown("noise", 0, 0, tag="n")
    rows = torch.tensor([[1.0, 0.0]], dtype=torch.float64)  # g is said in clear
    said = Transcript(
        clients=2, edges=[(0, 1)], messages=[Message(0, "mix", "x", rows, torch.tensor([0]))]
    )
    know = Knowledge(
        SymbolicRun(said, [g, n], {n: tacit.Gaussian(1.0)}, [], {}, {}), Adversary.eavesdropper()
    )
    assert know.variances(know.vector((g, 1.0), (n, 3.0))[None])[0] == pytest.approx(9.0)
    assert know.variances(know.vector((n, 3.0))[None])[0] == pytest.approx(9.0)


def test_a_model_that_has_noise_in_it_is_estimated_best():
    """Each of 5 edges tells w + (z − z')/2ρ, deviation √2/0.8; all w differ by known amounts: variance 2/0.64/5."""
    algorithm = tacit.PDMM(rho=0.4, noise=tacit.Gaussian(1.0), solver=tacit.ExactSolver())
    know = Knowledge(run_on_symbols(algorithm, RING, 6), Adversary.eavesdropper())
    models = np.stack([know.widened(rows[0]) for rows in run_on_symbols(algorithm, RING, 6).models])
    np.testing.assert_allclose(know.variances(models)[1:], 2 / 0.64 / 5, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e-7, 1.0, 1e7, 1e12])
def test_masks_are_masks_in_any_unit(scale):
    run = run_on_symbols(tacit.LPPA(lr=0.1, noise=tacit.Laplace(scale)), RING, 3)
    know = Knowledge(run, Adversary.eavesdropper())
    variance = know.variances(know.vector((Unknown("gradient", 0, 0), 1.0))[None])[0]
    assert variance == pytest.approx(4 * 2 * scale**2)


def test_noise_that_is_a_billion_times_smaller_is_noise_still():
    """Large masks that cancel, and small noise of one's own that does not: the sum is noisy, not exact."""
    # Over g, h, the noise of each, and a mask that they share.
    rows = torch.tensor([[1.0, 0, 1, 0, 1], [0, 1.0, 0, 1, -1]], dtype=torch.float64)
    h = Unknown("gradient", 0, 1)
    small = [Unknown("noise", 0, client, tag="own") for client in (0, 1)]
    mask = Unknown("noise", 0, 0, 1, "mask")
    message = Message(0, "mix", "x", rows, torch.tensor([0, 1]))
    said = Transcript(clients=3, edges=[(0, 1), (1, 0)], messages=[message])
    laws = {
        small[0]: tacit.Gaussian(1e-3),
        small[1]: tacit.Gaussian(1e-3),
        mask: tacit.Gaussian(1e6),
    }
    know = Knowledge(
        SymbolicRun(said, [G0, h, *small, mask], laws, [], {}, {}), Adversary.eavesdropper()
    )
    answer = know.ask(know.vector((G0, 1.0), (h, 1.0)))
    assert (answer.status, answer.variance) == ("noisy", pytest.approx(2e-6))
