import json

import numpy as np
import pytest

import tacit
from tacit.auditing.symbolic.exposure import LEVELS, MEANING, compute_exposure
from tacit.auditing.symbolic.symbols import run_on_symbols

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
MASK = tacit.Laplace(0.5)  # variance ½
NEIGHBOUR, ACROSS = (1, 4), (2, 3)


def table(algorithm, steps=6):
    return compute_exposure(run_on_symbols(algorithm, RING, steps))


def around(matrix, away):
    """The entries of a matrix between clients at these distances on the ring."""
    return {matrix[a, (a + step) % 5].item() for a in range(5) for step in away}


@pytest.mark.parametrize(
    ("algorithm", "neighbour", "across"),
    [
        (tacit.DSGT(lr=0.1), "gradient", "gradient"),
        (tacit.LPPA(lr=0.1, noise=MASK), "difference", "difference"),
        (tacit.LPPA(lr=0.1, noise=MASK, fresh=True), "sum", "sum"),
        (tacit.DPDSGT(lr=0.1, noise=MASK), "difference", "difference"),
        (tacit.DSG(lr=0.1), "sum", "sum"),
        (tacit.FedAvg(lr=0.1), "sum", "sum"),
        (tacit.DeFLVP(lr=0.1), "gradient", "nothing"),
        (tacit.DeFLVP(lr=0.1, private_variates=True), "nothing", "nothing"),
        (tacit.PDMM(solver=tacit.ExactSolver()), "sum", "sum"),
    ],
)
def test_levels_on_the_ring(algorithm, neighbour, across):
    found = table(algorithm)
    assert np.diag(found.levels).tolist() == [-1] * 5
    assert around(found.levels, NEIGHBOUR) == {LEVELS.index(neighbour)}
    assert around(found.levels, ACROSS) == {LEVELS.index(across)}
    assert found.steps == 6


def test_deviations_count_unknown_masks():
    """A neighbour shares two of four masks; fresh ones add up, so the first is known best."""
    for fresh in (False, True):
        found = table(tacit.LPPA(lr=0.1, noise=MASK, fresh=fresh))
        assert around(found.deviations.round(9), NEIGHBOUR) == {1.0}  # √(2 · ½)
        assert around(found.deviations.round(9), ACROSS) == {round(2**0.5, 9)}
        assert np.isinf(np.diag(found.deviations)).all()
    assert around(table(tacit.DSGT(lr=0.1)).deviations, (1, 2, 3, 4)) == {0.0}
    assert around(table(tacit.DSG(lr=0.1)).deviations, (1, 2, 3, 4)) == {np.inf}


def test_one_iteration_reveals_less():
    """After one message of DSGT only neighbours know the first gradient."""
    found = table(tacit.DSGT(lr=0.1), steps=1)
    assert around(found.levels, NEIGHBOUR) == {LEVELS.index("gradient")}
    assert around(found.levels, ACROSS) == {LEVELS.index("nothing")}


def test_plain_values_and_progress():
    done = []
    found = compute_exposure(run_on_symbols(tacit.DSGT(lr=0.1), RING, 2), done.append)
    assert done == [0, 1, 2, 3, 4]
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["iterations"] == 2
    assert plain["learns"][0] == [None, "gradient", "sum", "sum", "gradient"]
    assert plain["noise_deviation"][0] == [None, 0, None, None, 0]
    assert list(plain["meaning"]) == list(MEANING) == list(LEVELS)


def test_nothing_leaks_before_the_first_gradient():
    levels = compute_exposure(run_on_symbols(tacit.DSG(lr=0.1), RING, 0)).levels
    assert (levels[~np.eye(5, dtype=bool)] == LEVELS.index("nothing")).all()
