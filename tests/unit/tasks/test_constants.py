import copy
import math

import pytest
import torch
from torch import nn

import tacit
from tacit.tasks.constants import constants_agree, sketch_of_constants


def adapted(seed=0):
    torch.manual_seed(seed)
    base = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3))
    torch.manual_seed(0)
    return tacit.models.lora(base, rank=2)


def sketch(module):
    parts = [(torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))]
    return sketch_of_constants(tacit.Task(module, parts, batch_size=2).loss)


def test_trainable_parameters_are_not_part_of_it():
    module = adapted()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other[0].lora_b.fill_(1.0)
    assert len(sketch(module)) > 0
    assert sketch(module) == sketch(other)


@pytest.mark.parametrize("change", [3e-3, 0.1])
def test_other_frozen_weights_are_found(change):
    module = adapted()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other[2].weight.mul_(1 + change)
    assert not constants_agree(sketch(module), sketch(other))
    assert not constants_agree(sketch(module), sketch(adapted(seed=1)))


def test_exchanged_weights_are_found():
    module = adapted()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other[0].weight.copy_(module[0].weight.flip(0))
    assert not constants_agree(sketch(module), sketch(other))


def test_rounding_makes_no_difference():
    module = adapted()
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1 + 1e-7)
    assert sketch(module) != sketch(other)
    assert constants_agree(sketch(module), sketch(other))


def test_buffers_count_and_models_without_constants_have_no_sketch():
    class Shifted(nn.Linear):
        def __init__(self, shift):
            super().__init__(6, 3)
            self.register_buffer("shift", torch.full((6,), shift))

        def forward(self, x):
            return super().forward(x + self.shift)

    assert not constants_agree(sketch(Shifted(1.0)), sketch(Shifted(2.0)))
    assert sketch(nn.Linear(6, 3)) == ()
    assert constants_agree((), ())
    assert not constants_agree((), sketch(Shifted(1.0)))


def test_infinite_masks_do_not_hide_other_constants():
    first, second = adapted(), adapted(seed=1)
    for module in (first, second):
        module.register_buffer("mask", torch.full((32, 32), -torch.inf).triu(1))
    assert constants_agree(sketch(first), sketch(copy.deepcopy(first)))
    assert not constants_agree(sketch(first), sketch(second))


def test_what_is_no_number_does_not_agree():
    assert not constants_agree((math.nan,), (1.0,))
    assert not constants_agree((math.inf,), (math.inf,))
