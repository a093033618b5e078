"""A fixed sparse matrix times rows, in each of the ways it is kept."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tacit.core import native
from tacit.core.workers import WorkerPool
from tacit.engines import product
from tacit.engines.product import Product

SHAPES = {"square": (9, 9), "wide": (5, 12), "tall": (12, 5), "nothing arrives": (6, 0)}


def matrix(shape, filled, seed=0):
    rng = np.random.default_rng(seed)
    return sp.csr_array(rng.normal(size=shape) * (rng.random(shape) < filled))


@pytest.fixture(params=["dense", "compiled", "slots"])
def made(request, monkeypatch):
    """Makes products of one representation; slots are for GPUs, but also work on a CPU."""

    def make(of, dtype):
        with monkeypatch.context() as patch:
            patch.setattr(product, "DENSE", 10**6 if request.param == "dense" else -1)
            if request.param != "compiled":
                patch.setattr(native, "supports", lambda rows: False)
            kept = Product(of, dtype, "cpu")
        if request.param == "compiled" and not native.supports(torch.zeros(1, 1)):
            pytest.skip("there was no C compiler to install the compiled loops")
        assert (kept._dense is not None, kept._compiled) == (
            request.param == "dense",
            request.param == "compiled",
        )
        return kept

    return make


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "nothing arrives"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_product(made, shape, dtype):
    A = matrix(SHAPES[shape], 0.2)
    assert 0 < A.nnz < A.shape[0] * A.shape[1] / 4
    x = torch.randn(A.shape[1], 4, dtype=dtype, generator=torch.Generator().manual_seed(1))
    start = torch.randn(A.shape[0], 4, dtype=dtype, generator=torch.Generator().manual_seed(2))
    expected = torch.as_tensor(A.toarray(), dtype=dtype) @ x
    before, out = x.clone(), start.clone()
    kept = made(A, dtype)
    kept.write(out, x, accumulate=True)
    torch.testing.assert_close(out, start + expected)
    kept.write(out, x)
    torch.testing.assert_close(out, expected)
    assert torch.equal(x, before)


def test_a_matrix_without_columns_adds_nothing():
    kept = Product(matrix(SHAPES["nothing arrives"], 1.0), torch.float64, "cpu")
    out = torch.ones(6, 3, dtype=torch.float64)
    kept.write(out, torch.zeros(0, 3, dtype=torch.float64), accumulate=True)
    assert torch.equal(out, torch.ones(6, 3, dtype=torch.float64))


@pytest.mark.parametrize("compiled", [True, False])
def test_full_matrices_are_kept_dense_and_small_ones_without_compiled_loops(compiled, monkeypatch):
    monkeypatch.setattr(native, "supports", lambda rows: compiled)
    assert (Product(matrix((9, 9), 0.1), torch.float64, "cpu")._dense is None) == compiled
    assert Product(matrix((90, 90), 0.5), torch.float64, "cpu")._dense is not None
    assert Product(matrix((90, 90), 0.1), torch.float64, "cpu")._dense is None


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_the_rows(made, workers):
    A = matrix((20, 20), 0.15)
    x = torch.randn(20, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kept, out = made(A, torch.float64), torch.full_like(x, torch.nan)
    kept._pool = WorkerPool(workers)
    kept.write(out, x)
    torch.testing.assert_close(out, torch.as_tensor(A.toarray()) @ x)


@pytest.mark.parametrize("tile", [1, 7, 10**6])
def test_the_size_of_a_tile_changes_nothing(tile, monkeypatch):
    monkeypatch.setattr(product, "DENSE", -1)
    monkeypatch.setattr(native, "supports", lambda rows: False)
    A = matrix((20, 20), 0.15)
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole, tiled = torch.empty(2, 20, 3, dtype=torch.float64)
    Product(A, torch.float64, "cpu").write(whole, x)
    monkeypatch.setattr(product, "TILE", tile)
    Product(A, torch.float64, "cpu").write(tiled, x)
    assert torch.equal(tiled, whole)
