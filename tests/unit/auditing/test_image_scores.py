import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from tacit.auditing.scoring.images import mse, psnr, ssim, window_for
from tacit.core.errors import Misuse

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 13, 17), (3, 11, 40), (2, 64, 12)]


def images(shape, data_range=1.0, seed=0, noise=0.2):
    """Smooth random images and noisy copies of them, so that similarities are neither 0 nor 1."""
    generator = np.random.default_rng(seed)
    truth = np.cumsum(generator.normal(size=(4, *shape)), axis=-1)
    truth = (truth - truth.min()) / np.ptp(truth) * data_range
    guess = truth + noise * data_range * generator.normal(size=truth.shape)
    return torch.from_numpy(guess), torch.from_numpy(truth)


def by_skimage(guess, truth, data_range, window):
    options = (
        {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
        if window == "gaussian"
        else {}
    )
    return [
        structural_similarity(
            a.numpy(), b.numpy(), channel_axis=0, data_range=data_range, **options
        )
        for a, b in zip(guess, truth, strict=True)
    ]


@pytest.mark.parametrize("window", ["gaussian", "uniform"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("data_range", [1.0, 255.0])
def test_ssim_is_that_of_scikit_image(shape, window, data_range):
    guess, truth = images(shape, data_range)
    expected = by_skimage(guess, truth, data_range, window)
    np.testing.assert_allclose(ssim(guess, truth, data_range, window), expected, rtol=0, atol=1e-11)
    assert 0.02 < expected[0] < 0.98  # else it would be no test


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 9), (5,), ()])
def test_mse_and_psnr_of_any_shape(shape):
    generator = torch.Generator().manual_seed(1)
    guess, truth = (
        torch.randn(3, 2, *shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    errors, ratios = mse(guess, truth), psnr(guess, truth, 2.0)
    for k in range(3):
        a, b = guess[k].numpy(), truth[k].numpy()
        assert float(errors[k]) == pytest.approx(((a - b) ** 2).mean(), rel=1e-12)
        assert float(ratios[k]) == pytest.approx(
            peak_signal_noise_ratio(b, a, data_range=2.0), rel=1e-12
        )


def test_an_exact_copy_has_infinite_psnr():
    x = torch.ones(2, 3)
    assert psnr(x, x, 1.0).tolist() == [math.inf] * 2


def test_float32_is_scored_in_float64():
    guess, truth = images((1, 28, 28))
    got = ssim(guess.float(), truth.float(), 1.0)
    assert got.dtype == mse(guess.float(), truth.float()).dtype == torch.float64
    assert torch.allclose(got, ssim(guess, truth, 1.0), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((1, 28, 28), "gaussian"),
        ((3, 11, 40), "gaussian"),
        ((1, 8, 8), "uniform"),
        ((1, 10, 50), "uniform"),
    ],
)
def test_the_window_that_fits(shape, window):
    assert window_for(shape) == window


@pytest.mark.parametrize("shape", [(7,), (1, 6, 28), (28, 28)])
def test_no_window_fits(shape):
    assert window_for(shape) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: mse(x, x[:1]), "shape"),
        (lambda x: psnr(x, x, 0.0), "data_range is 0.0"),
        (lambda x: ssim(x, x, math.nan), "data_range is nan"),
        (lambda x: ssim(x, x, 1.0, "triangular"), "Choose one of: gaussian, uniform"),
        (lambda x: ssim(x[:, :, :8], x[:, :, :8], 1.0), "at least 11×11"),
        (lambda x: ssim(x.flatten(1), x.flatten(1), 1.0), "use mse, psnr"),
        (lambda x: mse(x.flatten(), x.flatten()[:2]), "one row per sample"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(Misuse, match=words):
        call(torch.zeros(2, 1, 28, 28))
