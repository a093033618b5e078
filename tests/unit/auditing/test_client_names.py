"""Clients in the texts of adversaries, by names that look like other texts."""

from dataclasses import replace

import pytest
import torch

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.client_names import client_position, with_positions
from tacit.core.errors import Misuse

ODD = ("a", "b", "a,b", "East (1)", "average", "curious(a)")


def test_a_number_is_a_position_and_a_text_is_a_name():
    names = ("1", "2", "0")
    assert [client_position(one, names) for one in (0, "0", 1, "1")] == [0, 2, 1, 0]
    assert client_position("1", ("a", "b")) == 1
    for wrong in ("3", 3, -1, True, None):
        with pytest.raises(Misuse, match="is not a client"):
            client_position(wrong, names)
    # A position by text could be meant as a name.
    with pytest.raises(Misuse, match="is not a client"):
        client_position("0", ("1", "2", "3"))


@pytest.mark.parametrize("corrupt", [(0, 1), (2,), (0, 2), (3, 4), (5,), (1, 3, 5)], ids=str)
@pytest.mark.parametrize("kind", [Adversary.curious, Adversary.deviating])
def test_the_text_of_an_adversary_has_one_meaning(corrupt, kind):
    adversary = replace(kind(*corrupt), names=ODD)
    assert Adversary.parse(with_positions(str(adversary), ODD)) == adversary


def test_names_without_commas_need_no_quotes():
    assert with_positions("curious(a, b)+theta0", ODD) == "curious(0,1)+theta0"
    assert with_positions("malicious(average):echo", ODD) == "malicious(4):echo"
    assert with_positions("worst(2)", ODD) == "worst(2)"
    with pytest.raises(Misuse, match="is not a client"):
        with_positions("curious(stranger)", ODD)


def test_audits_speak_of_the_client_that_was_asked_for():
    task = tacit.quadratic(torch.eye(2).repeat(4, 1, 1), torch.zeros(4, 2))
    graph = tacit.Topology.from_edges([(0, 1), (1, 2), (2, 3)], 4).mixing("metropolis")
    task = replace(task, names=("1", "2", "3", "0"))
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3)
    options = {"attacks": False, "heat_map": False}
    by_name = tacit.audit(run, "curious(2)", victim=["1", "0"], **options)
    by_position = tacit.audit(run, Adversary.curious(1), victim=[0, 3], **options)
    for audit in (by_name, by_position):
        assert audit.victims == [0, 3]
        near, far = (verdict.summary for verdict in audit.results[0].verdicts)
        assert near == "curious(2) computes 3 of 4 gradients of client 1 exactly"
        assert "client 0" in far
