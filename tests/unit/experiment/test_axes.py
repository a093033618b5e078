"""Keys with values and ranges, and their combinations."""

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.experiment.axes import Axis, combine


def axes(*texts):
    return [Axis.parse(text) for text in texts]


def test_a_grid_has_every_combination():
    cells = combine(axes("a.b=1,2", "c.d=x,[3,4],y"), None, 0)
    assert len(cells) == 6
    assert cells[0] == {"a.b": "1", "c.d": "x"}
    assert cells[4] == {"a.b": "2", "c.d": "[3,4]"}


@pytest.mark.parametrize("key", ["algorithm", "algorithm.name"])
def test_a_key_that_chooses_is_named_by_its_section(key):
    axis = Axis.parse(f'{key}=dsgt, pdmm+solver={{solver="inner",mu=0.1}}')
    assert (axis.key, axis.values) == ("algorithm", ("dsgt", 'pdmm+solver={solver="inner",mu=0.1}'))
    assert Axis.parse("graph.kind=ring").key == Axis.parse("graph=ring").key == "graph"
    assert Axis.parse("graph.degree=3").key == "graph.degree"


def test_random_combinations_are_different_and_follow_from_the_seed():
    over = axes("a.lr=log:1e-3:1", "a.n=int:2:4", "a.p=uniform:-1:1", "a.kind=x,y")
    cells = combine(over, 40, 0)
    assert len({tuple(cell.values()) for cell in cells}) == 40
    assert combine(over, 10, 0) == cells[:10]
    assert combine(over, 10, 1) != cells[:10]
    rates = [float(cell["a.lr"]) for cell in cells]
    assert all(1e-3 <= rate <= 1 for rate in rates)
    # As many below the geometric mean of the ends as above, roughly.
    assert 10 < sum(rate < 10**-1.5 for rate in rates) < 30
    assert {cell["a.n"] for cell in cells} == {"2", "3", "4"}
    assert all(-1 <= float(cell["a.p"]) <= 1 for cell in cells)
    assert {cell["a.kind"] for cell in cells} == {"x", "y"}


def test_there_may_be_fewer_combinations_than_are_asked_for():
    assert len(combine(axes("a.b=1,2"), 10, 0)) == 2


@pytest.mark.parametrize(
    ("texts", "draws", "words"),
    [
        ([], None, ["nothing to vary"]),
        (["a.b=1", "a.b=2"], None, ["a.b", "twice"]),
        (["run.seed=1,2"], None, ["--seeds"]),
        (["a.b=log:1:2"], None, ["range", "--random"]),
        (["a.b=1"], 0, ["--random is 0"]),
        ([f"a.k{n}=0,1,2,3,4,5,6,7,8,9" for n in range(5)], None, ["100,000 combinations"]),
    ],
)
def test_combinations_that_make_no_sense(texts, draws, words):
    assert_mentions(misuse_message(combine, axes(*texts), draws, 0), *words)


@pytest.mark.parametrize(
    "text",
    ["lr", "=1", "a.lr=", "a.lr=1,,2", "a.lr=log:0:1", "a.lr=log:x:1", "a.n=int:3:3",
     "a.p=uniform:1", "a.p=uniform:nan:1"],
)  # fmt: skip
def test_an_axis_of_another_form_is_refused(text):
    assert_mentions(misuse_message(Axis.parse, text), "--over")
