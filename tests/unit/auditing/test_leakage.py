import json

import numpy as np
import pytest

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import QUESTIONS, Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
RUN = run_on_symbols(tacit.LPPA(lr=0.1, noise=tacit.Laplace(0.5)), RING, 4)


def leakage_of(adversary="curious(1)", victim=0, run=RUN):
    return Leakage(Knowledge(run, Adversary.parse(adversary)), victim)


@pytest.mark.parametrize("victim", [-1, 5])
def test_a_victim_must_exist(victim):
    with pytest.raises(Misuse, match=rf"no client {victim} to be the victim.*0 to 4"):
        leakage_of(victim=victim)


def test_a_corrupt_victim_is_refused():
    with pytest.raises(Misuse, match=r"Client 3 is corrupt.*curious\(1,3\).*Name an honest client"):
        leakage_of("curious(1,3)", victim=3)


def test_questions_over_time():
    leakage = leakage_of()
    assert leakage.honest_component == {0, 2, 3, 4}
    assert leakage.gradients == [Unknown("gradient", when, 0) for when in range(5)]
    assert {q: leakage.of(q).when for q in QUESTIONS} == {
        "gradient": [0, 1, 2, 3, 4],
        "update": [],
        "difference": [1, 2, 3, 4],  # the later one
        "combination": [],
        "group": [2],
        "sum": [0, 1, 2, 3, 4],
        "model": [0, 1, 2, 3, 4],
        "image": [],
    }


def test_statuses_agree_with_answers():
    for adversary in ("curious(1)", "curious(1,4)", "eavesdropper"):
        for victim in (0, 2):
            leakage = leakage_of(adversary, victim)
            for question in QUESTIONS:
                series = leakage.of(question)
                answers = [series.estimate(index) for index in range(len(series.when))]
                assert [answer.status for answer in answers] == series.statuses
                variances = [
                    np.inf if answer.variance is None else answer.variance for answer in answers
                ]
                np.testing.assert_allclose(variances, series.variances)
                for status in ("exact", "noisy", "hidden"):
                    assert [series.statuses[index] for index in series.indices(status)] == [
                        status
                    ] * series.statuses.count(status)


def test_terms_of_questions():
    leakage = leakage_of()
    g = [Unknown("gradient", 2, client) for client in range(5)]
    assert leakage.terms("gradient", 2) == ((g[0],), (1.0,))
    assert leakage.terms("difference", 1) == ((g[0], Unknown("gradient", 1, 0)), (1.0, -1.0))
    assert leakage.terms("sum", 2) == ((g[0], g[2], g[3], g[4]), (1.0,) * 4)
    assert leakage.terms("model", 2) == ((), ())


def test_several_gradients_per_step():
    run = run_on_symbols(tacit.DSGT(lr=0.1, local_steps=3), RING, 2)
    leakage = leakage_of("eavesdropper", run=run)
    assert leakage.of("gradient").when == list(range(7))  # one at the start, three in each step
    assert len(leakage.of("difference").when) == 6


def test_images_are_results_of_nonlinear_steps_on_gradients():
    """Responses go into private variates and on to the codec, whose rows are sent at once."""
    run = run_on_symbols(tacit.DeFLVP(lr=0.1, private_variates=True), RING, 3)
    leakage = leakage_of(run=run)
    assert [str(u) for u in leakage.images] == [
        f"{tag}[0]({tick})" for tick in (1, 2, 3) for tag in ("response", "codec")
    ]
    series = leakage.of("image")
    assert series.when == [1, 1, 2, 2, 3, 3]
    assert series.statuses == ["exact"] * 4 + [
        "hidden",
        "exact",
    ]  # the last variate is not sent any more
    assert leakage.terms("image", 3) == ((Unknown("nonlinear", 2, 0, tag="codec"),), (1.0,))
    published = leakage_of(run=run_on_symbols(tacit.DeFLVP(lr=0.1), RING, 3)).of("image")
    assert published.statuses == ["hidden", "exact"] * 3


def test_a_step_on_first_models_is_no_image():
    """Protection of the first model contains no gradients, that of later models does."""
    leakage = leakage_of(run=run_on_symbols(tacit.DSGRMS(lr=0.1), RING, 2))
    assert [(u.tag, u.when) for u in leakage.images] == [("M", 1), ("M", 2), ("c", 2)]


def test_plain_values():
    plain = json.loads(json.dumps(leakage_of().as_dict()))
    assert (plain["victim"], plain["honest_component"]) == (0, [0, 2, 3, 4])
    assert plain["gradient"]["status"] == ["noisy", "noisy", "noisy", "hidden", "hidden"]
    assert (
        plain["gradient"]["noise_deviation"] == [pytest.approx(1.0)] * 3 + [None] * 2
    )  # two masks of 2 · 0.5²
    assert plain["difference"]["noise_deviation"] == [0, 0, None, None]


def test_the_proof_in_plain_values_is_a_proof():
    """The terms in the file add up to the difference."""
    leakage = leakage_of()
    plain = json.loads(json.dumps(leakage.as_dict()))
    assert plain["gradient"]["proof"] is None  # noisy only
    proof, run = plain["difference"]["proof"], leakage.knowledge.run
    total = {}
    for term in proof["messages"]:
        sent = [
            m for m in run.transcript.messages if (m.tag, m.tick) == (term["message"], term["tick"])
        ]
        row = sent[0].rows[sent[0].source.tolist().index(term["source"])]
        for index in row.nonzero()[:, 0].tolist():
            name = str(run.unknowns[index])
            total[name] = total.get(name, 0) + term["coefficient"] * float(row[index])
    for term in proof["own"]:
        total[term["holds"]] = total.get(term["holds"], 0) + term["coefficient"]
    left = {name: x for name, x in total.items() if abs(x) > 1e-6}
    assert left == pytest.approx({"g[0](1)": 1.0, "g[0](0)": -1.0})
    assert proof["of"] == 1
    assert proof["gain"] == pytest.approx(
        sum(abs(term["coefficient"]) for term in proof["messages"])
    )


def test_no_iterations():
    leakage = leakage_of(run=run_on_symbols(tacit.DSG(lr=0.1), RING, 0))
    assert {q: leakage.of(q).when for q in QUESTIONS if q != "model"} == {
        q: [] for q in QUESTIONS if q != "model"
    }
    assert leakage.of("model").when == [0]
    assert leakage.of("model").statuses == ["hidden"]
