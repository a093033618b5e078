"""Checks of errors that tell a user what is wrong and what to do."""

import pytest

from tacit.core.errors import Misuse


def misuse_message(call, *arguments, **options):
    """The message of the Misuse that a call raises; it must have a remedy."""
    with pytest.raises(Misuse) as caught:
        call(*arguments, **options)
    assert caught.value.remedy
    return str(caught.value)


def assert_mentions(message, *words):
    for word in words:
        assert word in message
