import pytest

from tacit.core.errors import Misuse, prefix_errors


def test_prefix_errors_changes_misuse_only():
    with pytest.raises(Misuse) as caught, prefix_errors("[graph]"):
        raise Misuse("Too few.", "Add one.")
    assert str(caught.value) == "[graph]: Too few. Add one."
    assert caught.value.remedy == "Add one."
    with pytest.raises(KeyError), prefix_errors("[graph]"):
        raise KeyError("x")
