import re
from dataclasses import replace

import pytest
import torch

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import apply_combination, evidence, randomized_gradient
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep
from tacit.record.unknowns import Unknown

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
COMPLETE = tacit.Topology.complete(5).mixing("metropolis", lazy=True)
STEPS = 5


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


TASK = tacit.quadratic(
    torch.diag_embed(draw(5, 4).abs() + 0.5), draw(5, 4, seed=1), theta0=draw(5, 4, seed=2)
)
LPPA = tacit.LPPA(lr=0.1, noise=tacit.Laplace(0.5))


def numbers(algorithm, insides, steps=STEPS, graph=RING, **keep):
    kept = Keep(insides=tuple(insides), **keep)
    return tacit.run(TASK, algorithm, graph, steps=steps, seed=3, transcript=kept).transcript


def found(algorithm, adversary, victim=0, **keep):
    run = run_on_symbols(algorithm, RING, STEPS, Keep(**keep))
    return Leakage(Knowledge(run, Adversary.parse(adversary)), victim)


def gradient(algorithm, when, client=0):
    return numbers(algorithm, range(5)).held[Unknown("gradient", when, client)]


def test_a_gradient_a_difference_a_sum_and_a_model():
    leakage, transcript = found(LPPA, "curious(1,4)"), numbers(LPPA, [1, 4])
    exact = evidence(leakage, "gradient", 2, transcript)
    torch.testing.assert_close(exact.values, gradient(LPPA, 2))
    assert (exact.kind, exact.victim, exact.deviation) == ("gradient", 0, 0)
    assert exact.gain > 0
    assert str(exact) == "gradient +1·g[0](2), exactly"

    one, transcript = found(LPPA, "curious(1)"), numbers(LPPA, [1])
    noisy = evidence(one, "gradient", 0, transcript)
    assert noisy.kind == "noisy gradient"
    assert noisy.deviation == pytest.approx(1.0)
    assert "with noise of deviation 1" in str(noisy)
    shift = evidence(one, "difference", 1, transcript)
    torch.testing.assert_close(shift.values, gradient(LPPA, 2) - gradient(LPPA, 1))
    assert (shift.kind, shift.coefficients) == ("difference", (1.0, -1.0))
    total = evidence(one, "sum", 1, transcript)
    torch.testing.assert_close(total.values, sum(gradient(LPPA, 1, i) for i in (0, 2, 3, 4)))
    assert total.points.shape == (4, 4)
    model = evidence(one, "model", 1, transcript)
    torch.testing.assert_close(model.values, numbers(LPPA, [1]).of("theta")[1].rows[0])
    assert (model.terms, model.points) == ((), None)
    assert str(model) == "model of client 0"


def test_where_the_gradient_was_taken_is_known_where_the_model_is():
    """The quadratic's gradient is Aθ − b there."""
    leakage, transcript = found(tacit.DSGT(lr=0.1), "curious(1)"), numbers(tacit.DSGT(lr=0.1), [1])
    hessian, linear = TASK.parts[0]
    for place in range(4):
        proof = evidence(leakage, "gradient", place, transcript)
        torch.testing.assert_close(hessian @ proof.points[0] - linear, proof.values)
    diffusion = tacit.DSG(lr=0.1)
    proof = evidence(found(diffusion, "curious(1,4)"), "gradient", 1, numbers(diffusion, [1, 4]))
    torch.testing.assert_close(hessian @ proof.points[0] - linear, proof.values)


def test_a_gradient_known_at_an_unknown_model_has_no_points():
    algorithm = tacit.PDMM(noise=tacit.Gaussian(1.0), solver=tacit.ExactSolver())
    proof = evidence(found(algorithm, "eavesdropper"), "difference", 1, numbers(algorithm, []))
    assert proof is not None
    assert proof.points is None


def test_an_image_is_what_the_nonlinear_step_gave():
    algorithm = tacit.DeFLVP(lr=0.1, private_variates=True)
    leakage, transcript = found(algorithm, "curious(1)"), numbers(algorithm, [1])
    truth = numbers(algorithm, range(5)).held
    for place, unknown in enumerate(leakage.images[:4]):
        proof = evidence(leakage, "image", place, transcript)
        torch.testing.assert_close(proof.values, truth[unknown])
        assert (proof.kind, proof.deviation, proof.points) == ("image", 0, None)


def test_hidden_answers_have_no_evidence():
    assert (
        evidence(
            found(tacit.DSG(lr=0.1), "curious(1)"), "gradient", 1, numbers(tacit.DSG(lr=0.1), [1])
        )
        is None
    )
    assert evidence(found(LPPA, "curious(1)"), "gradient", STEPS, numbers(LPPA, [1])) is None


def test_float32_messages_give_float64_evidence():
    single = tacit.quadratic(torch.eye(3).repeat(5, 1, 1), torch.ones(5, 3))
    transcript = tacit.run(
        single, LPPA, RING, steps=STEPS, transcript=Keep(insides=(1, 4))
    ).transcript
    assert transcript.messages[0].rows.dtype == torch.float32
    gradient = evidence(found(LPPA, "curious(1,4)"), "gradient", 0, transcript)
    assert gradient.values.dtype == torch.float64


@pytest.mark.parametrize(
    "other",
    [
        lambda: numbers(tacit.DSG(lr=0.1), [1]),
        lambda: numbers(LPPA, [1], steps=STEPS - 1),
        lambda: numbers(LPPA, [1], steps=STEPS + 1),
        lambda: numbers(LPPA, [1], tags=("gamma",)),
        lambda: numbers(LPPA, [1], clients=(1,)),
        lambda: numbers(tacit.LPPA(lr=0.1, masks="sent"), [1]),
        lambda: numbers(LPPA, [1], graph=COMPLETE),
    ],
    ids=["algorithm", "shorter", "longer", "some tags", "some clients", "sent masks", "graph"],
)
def test_the_transcript_of_another_run_is_refused(other):
    with pytest.raises(Misuse, match=r"other messages.*same run, recorded with the same bounds"):
        evidence(found(LPPA, "curious(1)"), "gradient", 0, other())


def test_bounds_that_are_the_same_are_no_obstacle():
    bounds = {"clients": (1,), "ticks": (0, 3)}
    leakage = found(LPPA, "curious(1)", **bounds)
    proof = evidence(leakage, "difference", 0, numbers(LPPA, [1], **bounds))
    torch.testing.assert_close(proof.values, gradient(LPPA, 1) - gradient(LPPA, 0))


@pytest.mark.parametrize("insides", [(), (2,)])
def test_what_corrupt_clients_hold_must_have_been_recorded(insides):
    words = re.escape(
        "but the transcript does not have it. Record what corrupt clients hold: name them in "
        "`insides`"
    )
    with pytest.raises(Misuse, match=words):
        evidence(found(LPPA, "curious(1)"), "gradient", 0, numbers(LPPA, insides))


def test_first_models_that_are_known_must_have_been_recorded():
    algorithm = tacit.DSG(lr=0.1)
    leakage = found(algorithm, "curious(1)+theta0")
    proof = evidence(leakage, "gradient", 0, numbers(algorithm, [1], theta0=True))
    torch.testing.assert_close(proof.values, gradient(algorithm, 1))
    with pytest.raises(Misuse, match=r"knows θ⁰\[0\], but the transcript does not have it"):
        evidence(leakage, "gradient", 0, numbers(algorithm, [1]))


def test_an_empty_combination_is_zero():
    know = found(LPPA, "curious(1)").knowledge
    zero = know.estimate(know.vector()).combination
    assert (zero.messages, zero.own) == ((), ())
    assert apply_combination(zero, know, numbers(LPPA, [1])).item() == 0


MATRIX = tacit.MatrixStep(deviation=1.0, off_diagonal=0.5)
DSG_RMS = tacit.DSGRMS(lr=0.1, matrix=MATRIX)


def test_a_gradient_times_a_random_matrix():
    """Each coordinate is μ·gₐ + z·gₐ₊₁ with the numbers that were drawn."""
    leakage = found(DSG_RMS, "curious(1)+theta0", theta0=True)
    transcript = numbers(DSG_RMS, [1], theta0=True)
    known = randomized_gradient(leakage, transcript)
    assert (known.kind, known.victim, known.deviation) == ("randomized gradient", 0, 0)
    assert known.terms == (Unknown("gradient", 1, 0),)
    assert str(known) == "randomized gradient M(g[0](1))"
    held = numbers(DSG_RMS, range(5)).held
    expected = next(row for u, row in held.items() if u.kind == "nonlinear" and u[1:3] == (1, 0))
    torch.testing.assert_close(known.values, expected.double())
    torch.testing.assert_close(known.points[0], draw(5, 4, seed=2)[0])
    assert (known.step.tag, known.step.mean) == ("M", 1.0)
    assert known.step.log_density == MATRIX.log_density
    assert known.step.shift is None
    assert not known.is_exact


def test_what_is_added_to_a_gradient_before_the_matrix_is_known():
    decayed = replace(DSG_RMS, weight_decay=0.3)
    leakage = found(decayed, "curious(1)+theta0", theta0=True)
    known = randomized_gradient(leakage, numbers(decayed, [1], theta0=True))
    torch.testing.assert_close(known.step.shift, 0.3 * draw(5, 4, seed=2)[0])


@pytest.mark.parametrize(
    "algorithm",
    [
        tacit.DSG(lr=0.1),
        tacit.DeFLVP(lr=0.1, private_variates=True),
        # Without randomness it is linear: the gradient itself is known.
        tacit.DSGRMS(lr=0.1, matrix=tacit.MatrixStep("diagonal", deviation=0.0)),
    ],
)
def test_no_density_no_randomized_gradient(algorithm):
    leakage = found(algorithm, "curious(1)+theta0", theta0=True)
    transcript = numbers(algorithm, [1], theta0=True)
    assert randomized_gradient(leakage, transcript) is None
