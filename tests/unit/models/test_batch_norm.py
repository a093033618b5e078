"""Group normalisation in the place of batch normalisation."""

import pytest
import torch
from torch import nn

import tacit
from support.misuse import misuse_message
from tacit import models


def test_every_batch_norm_is_replaced_and_the_module_stays():
    module = nn.Sequential(
        nn.Conv2d(3, 48, 3),
        nn.BatchNorm2d(48, eps=1e-3),
        nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.BatchNorm1d(8, affine=False)),
    )
    module(torch.zeros(2, 3, 4, 4))
    text = repr(module)
    nn.init.normal_(module[1].weight)
    changed = models.replace_batch_norm(module)
    assert repr(module) == text
    assert (changed[1].num_groups, changed[1].eps) == (16, 1e-3)
    assert torch.equal(changed[1].weight, module[1].weight)
    assert (changed[2][2].num_groups, changed[2][2].affine) == (1, False)
    assert models.replace_batch_norm(module, groups=8)[1].num_groups == 8
    assert not list(changed.buffers())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(6), (4, 6)),
        (nn.BatchNorm2d(6), (4, 6, 3, 3)),
        (nn.BatchNorm3d(6), (4, 6, 3, 3, 3)),
        (nn.SyncBatchNorm(6), (4, 6, 3, 3)),
    ],
)
def test_outputs_do_not_depend_on_the_rest_of_the_batch(layer, shape):
    changed, x = models.replace_batch_norm(layer), torch.randn(shape)
    torch.testing.assert_close(changed(x)[:1], changed(x[:1]))
    # A group of one number would be normalised to zero.
    assert float(changed(x).detach().abs().min()) > 0


def test_the_refusal_names_it_and_it_helps():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    parts = [(torch.randn(8, 4), torch.arange(8) % 2)] * 3
    message = misuse_message(tacit.Task, module, parts, batch_size=4)
    assert "tacit.models.replace_batch_norm(model)" in message
    changed = models.replace_batch_norm(module)
    assert tacit.Task(changed, parts, batch_size=4).parameters == 30 + 12 + 14


def test_lazy_layers_and_bad_groups_are_refused():
    assert "lazy" in misuse_message(models.replace_batch_norm, nn.LazyBatchNorm2d())
    assert "groups" in misuse_message(models.replace_batch_norm, nn.BatchNorm2d(2), groups=0)


def test_a_layer_in_two_places_is_replaced_in_both_by_one():
    norm = nn.BatchNorm1d(6)
    module = nn.Sequential(nn.Linear(6, 6), norm, nn.Sequential(nn.Linear(6, 3)), norm)
    changed = tacit.models.replace_batch_norm(module)
    assert isinstance(changed[1], nn.GroupNorm)
    assert changed[3] is changed[1]
