"""A layer in two places of a model is replaced in both, by one layer."""

import torch
from torch import nn

import tacit
from tacit.models.dropout import KeyedDropout


def test_dropout():
    drop = nn.Dropout(0.5)
    keyed = tacit.models.keyed(nn.Sequential(drop, nn.Linear(2, 2), drop))
    assert isinstance(keyed[0], KeyedDropout)
    assert keyed[2] is keyed[0]


def test_batch_normalisation():
    norm = nn.BatchNorm1d(6)
    module = nn.Sequential(nn.Linear(6, 6), norm, nn.Sequential(nn.Linear(6, 3)), norm)
    changed = tacit.models.replace_batch_norm(module)
    assert isinstance(changed[1], nn.GroupNorm)
    assert changed[3] is changed[1]


def test_adapters():
    layer = nn.Linear(6, 6)
    adapted = tacit.models.lora(nn.Sequential(layer, nn.Tanh(), layer), rank=2)
    with torch.no_grad():
        adapted[0].lora_b.normal_()
    merged = tacit.models.merge_lora(adapted)
    assert type(merged[2]) is nn.Linear
    assert merged[2] is merged[0]
    x = torch.randn(4, 6)
    torch.testing.assert_close(merged(x), adapted(x))
