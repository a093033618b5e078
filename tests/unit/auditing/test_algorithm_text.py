"""An audit says at which line of an algorithm's text symbols end, and what to write instead."""

import pytest
import torch

import tacit
from support.written import Written
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AuditOptions
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
LAW = tacit.Gaussian(0.5)
SIDE = 8
PROOFS = AuditOptions(iterations=2, attacks=False, heat_map=False)


def audited(sent, adversaries=("curious(1)",)):
    width = SIDE * SIDE
    task = tacit.quadratic(torch.eye(width).repeat(5, 1, 1), torch.zeros(5, width))
    return run_audit(Setting(Written(sent), task, RING), list(adversaries), PROOFS)


def halved(rows):
    squares = rows.view(-1, SIDE, SIDE)
    return (squares / 2).flatten(1)


def test_a_width_that_is_fixed_is_named_with_its_line_and_remedy():
    with pytest.raises(Misuse) as refused:
        audited(lambda w, g, here: w - halved(g))
    message = str(refused.value)
    assert " of test_algorithm_text.py, `squares = rows.view(-1, SIDE, SIDE)`" in message
    assert "here.nonlinear" in message


def test_a_width_that_is_fixed_inside_of_a_declared_step_is_followed():
    audit = audited(lambda w, g, here: w - here.nonlinear("halved", halved, g))
    assert audit.remarks == []


NOT_LINEAR = {
    "torch.sign(g)": lambda w, g, here: w - torch.sign(g),
    "g.norm(dim=1)": lambda w, g, here: w - g / (1 + g.norm(dim=1)[:, None]),
    "g.clamp(-1, 1)": lambda w, g, here: w - g.clamp(-1, 1),
    "* g)": lambda w, g, here: w - (g * g),
    "w > 0": lambda w, g, here: w - g * (w > 0),
    "g + 1": lambda w, g, here: w - (g + 1),
    "g.roll(1, 1)": lambda w, g, here: w - g.roll(1, 1),
    "g[:, :1]": lambda w, g, here: w - g[:, :1],
    "g.sum().item()": lambda w, g, here: w - g.sum().item() * g,
}


@pytest.mark.parametrize("operation", NOT_LINEAR)
def test_the_line_that_is_not_linear_is_named(operation):
    with pytest.raises(Misuse) as refused:
        audited(NOT_LINEAR[operation])
    message = str(refused.value)
    assert "sees no message" not in message
    assert "of test_algorithm_text.py" in message
    assert operation in message
    assert "here.nonlinear" in message


def test_lines_before_it_that_are_linear_are_not_named():
    def sent(w, g, here):
        moved = torch.where(torch.arange(5)[:, None] > 1, w, 0.5 * w)
        moved[2:] = moved[2:].clone() * 2
        moved = moved + torch.zeros_like(w) - here.graph.own(g).neg()
        return moved.abs()

    with pytest.raises(Misuse, match=r"moved\.abs"):
        audited(sent)
