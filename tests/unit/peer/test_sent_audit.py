"""What a node's audit of its own messages says in one sentence."""

import pytest

from tacit.peer.node.sent_audit import CoalitionFindings, Recovered


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([], "bob computes no gradient"),
        (["noisy gradient"], "bob computes gradients only with noise"),
        (["randomized gradient"], "bob computes gradients only as a random step changed them"),
    ],
)
def test_the_summary_without_exact_gradients(kinds, words):
    found = [Recovered(kind, "M(g(1))", False, 1.4) for kind in kinds]
    assert CoalitionFindings(("bob",), {"gradient": (0, 3)}, found).summary == words
