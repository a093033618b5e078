import pytest

from tacit.core.errors import Misuse, prefix_errors, unknown_name


def test_prefix_errors_changes_misuse_only():
    with pytest.raises(Misuse) as caught, prefix_errors("[graph]"):
        raise Misuse("Too few.", "Add one.")
    assert str(caught.value) == "[graph]: Too few. Add one."
    assert caught.value.remedy == "Add one."
    with pytest.raises(KeyError), prefix_errors("[graph]"):
        raise KeyError("x")


def test_the_closest_name_is_found_whatever_its_capitals():
    for given in ("DSGT", "Dsgt", "dgst"):
        error = unknown_name("No.", given, ["lppa", "dsgt"])
        assert str(error) == "No. Did you mean 'dsgt'? Known: lppa, dsgt."
