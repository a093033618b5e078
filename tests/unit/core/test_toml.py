import math
import tomllib

import pytest
from hypothesis import given, strategies as st

from tacit.core.toml import to_toml

VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
SECTIONS = st.dictionaries(
    st.sampled_from(["data", "graph", "run"]),
    st.dictionaries(st.text(max_size=8), VALUES, max_size=4),
)


@given(SECTIONS)
def test_everything_round_trips(sections):
    assert tomllib.loads(to_toml(sections)) == sections


@pytest.mark.parametrize(
    "text", ["\x7f", "\x00\x1f", 'a "quoted" \\ word', "zwei\nZeilen\t", "γᵢ ≤ 1", "🙂"]
)
def test_text_that_needs_escapes_round_trips(text):
    assert tomllib.loads(to_toml({"a": {text: text}})) == {"a": {text: text}}


@pytest.mark.parametrize(
    "number", [0.1 + 0.2, 1e-320, 1e300, 5e-05, 1e16, math.inf, -math.inf, -0.0, 0.05]
)
def test_numbers_keep_every_bit(number):
    read = tomllib.loads(to_toml({"a": {"x": number}}))["a"]["x"]
    assert isinstance(read, float)
    assert read.hex() == number.hex()


def test_whole_numbers_stay_whole_and_booleans_stay_booleans():
    read = tomllib.loads(to_toml({"a": {"one": 1, "yes": True, "pair": (1, 2.0)}}))["a"]
    assert [type(read[key]) for key in ("one", "yes")] == [int, bool]
    assert [type(item) for item in read["pair"]] == [int, float]


def test_values_without_a_toml_form_are_refused():
    with pytest.raises(TypeError, match="None"):
        to_toml({"a": {"x": None}})
