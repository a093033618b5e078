"""Compiled loops give the same bits on every processor, whatever instructions it has."""

import hashlib
import platform

import pytest
import torch

from tacit.core import native
from tacit.core.errors import Misuse
from tacit.core.native import layers
from tacit.core.noise import Laplace
from tacit.core.randomness import Philox, derive_key, words

pytestmark = pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")

ROWS, WIDTH = 5, 12_551
TYPES = {"float32": torch.float32, "float64": torch.float64}


def numbers(name, rows=ROWS, width=WIDTH, dtype=torch.float32):
    """Numbers in [−1, 1) that do not depend on torch's generator, which may change."""
    source = torch.arange(rows)
    drawn = words(derive_key(name), 0, source, torch.zeros_like(source), range(width))
    return (drawn.double() * 2.0**-31 - 1).to(dtype)


def mixed(dtype):
    begin = torch.tensor([0, 3, 6, 7, 7, 12])
    source = torch.tensor([4, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4])
    out = torch.empty(ROWS, WIDTH, dtype=dtype)
    weight = numbers("weight", 1, len(source), dtype)[0]
    native.mix(begin, source, weight, numbers("x", dtype=dtype), out, slice(0, ROWS))
    return out


def added(dtype):
    out = numbers("out", dtype=dtype)
    native.add(out, 0.3, numbers("x", dtype=dtype), -0.7, numbers("y", dtype=dtype), slice(0, ROWS))
    return out


def noisy(dtype):
    rows = Philox(3, WIDTH, dtype).rows("delta", Laplace(0.025), 7, torch.arange(ROWS), None)
    return rows.draw(torch.arange(ROWS))


def encoded(dtype):
    out, largest = torch.zeros(WIDTH, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    native.add_encoded(numbers("x", dtype=dtype), 1e4, 9_000, out, largest, slice(0, WIDTH))
    return torch.cat([out, largest])


LOOPS = {"mix": mixed, "add": added, "laplace": noisy, "encoded": encoded}
# The same on aarch64 and x86-64, and for every target but those of ROUNDED_PRODUCTS.
KNOWN = {
    ("mix", "float32"): "855227e441533ae3",
    ("mix", "float64"): "5ce0fc6c572f8544",
    ("add", "float32"): "21ea6ea1ae82c8a7",
    ("add", "float64"): "b84ae39113d87373",
    ("laplace", "float32"): "8ccf6c46a9bfc5a6",
    ("laplace", "float64"): "f4ad4b23f352924f",
    ("encoded", "float32"): "a66b426186afdcb9",
    ("encoded", "float64"): "3b0209da3f0dd239",
}
# Sums on processors without fused multiplications: the baseline of x86-64.
ROUNDED_PRODUCTS = {
    ("add", "float32"): "648371b1870ff365",
    ("add", "float64"): "391dad66d69cb1dd",
}


def digest(result):
    return hashlib.blake2b(result.numpy().tobytes(), digest_size=8).hexdigest()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("target", native.targets())
def test_every_processor_gives_known_bits(target, name, dtype, monkeypatch):
    monkeypatch.setattr(native, "target", lambda: target)
    fused = target != "baseline" or platform.machine() in ("aarch64", "arm64")
    known = KNOWN if fused else KNOWN | ROUNDED_PRODUCTS
    assert digest(LOOPS[name](TYPES[dtype])) == known[name, dtype]


@pytest.mark.parametrize("target", native.targets())
def test_every_target_has_the_loops_for_samples(target, monkeypatch):
    monkeypatch.setattr(native, "target", lambda: target)
    left, right = numbers("left", 6, 9), numbers("right", 6, 70)
    out = torch.empty(2, 9 * 70)
    layers.outer_sums(left, right, torch.tensor([0, 4, 6]), out)
    exact = [left[rows].double().T @ right[rows].double() for rows in (slice(0, 4), slice(4, 6))]
    assert torch.allclose(out.double(), torch.stack(exact).flatten(1), rtol=0, atol=1e-6)


def test_targets_are_a_prefix_of_the_known_ones():
    found = native.targets()
    assert found == native.TARGETS[: len(found)]
    assert native.target() in found


@pytest.mark.parametrize("target", native.targets())
def test_the_environment_selects_a_target(target, monkeypatch):
    monkeypatch.setenv(native.TARGET_VARIABLE, target)
    assert native.target.__wrapped__() == target


def test_a_target_that_the_processor_cannot_run_is_refused(monkeypatch):
    monkeypatch.setenv(native.TARGET_VARIABLE, "avx1024")
    with pytest.raises(Misuse, match="avx1024"):
        native.target.__wrapped__()
