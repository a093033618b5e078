"""Rows of noise that are drawn when needed are a tensor to arithmetic and to PyTorch."""

import operator

import pytest
import torch

from tacit.core.rows import NoiseRows

TABLE = torch.arange(1.0, 7.0).reshape(3, 2)
ROWS = NoiseRows(3, 2, TABLE.dtype, TABLE.device, lambda index: TABLE[index])
OTHER = torch.tensor([[2.0, 3.0]])


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("other", [OTHER, 2.0, ROWS], ids=["tensor", "number", "noise"])
def test_they_take_part_in_arithmetic_on_either_side(name, other):
    apply = getattr(operator, name)
    value = TABLE if other is ROWS else other
    assert torch.equal(apply(ROWS, other), apply(TABLE, value))
    assert torch.equal(apply(other, ROWS), apply(value, TABLE))


def test_other_operations_get_all_rows():
    assert torch.equal(-ROWS / 2, -TABLE / 2)
    assert torch.equal(torch.cat([ROWS, OTHER]), torch.cat([TABLE, OTHER]))
    assert torch.equal(torch.add(ROWS, OTHER, alpha=2), TABLE + 2 * OTHER)
    assert torch.equal(ROWS[torch.tensor([2, 0])], TABLE[[2, 0]])
