import json

import pytest
import torch

from tacit.auditing.scoring import reconstruction
from tacit.auditing.scoring.images import mse, ssim
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.core.errors import Misuse
from tacit.data.sources.images import read_mini

VICTIMS, BATCH = 3, 4


@pytest.fixture(scope="module")
def digits():
    """Victims' digits [3, 4, 1, 28, 28], two of one class in each batch, and a public pool."""
    raw = read_mini()
    x, y = torch.from_numpy(raw.train.x).double() / 255, torch.from_numpy(raw.train.y)
    first = [torch.nonzero(y == label).flatten() for label in range(10)]
    labels = torch.tensor([[0, 1, 1, 2], [3, 4, 5, 5], [6, 7, 7, 8]])
    index = torch.stack(
        [torch.stack([first[c][k] for k, c in enumerate(row)]) for row in labels.tolist()]
    )
    pool = torch.cat([own[100:140] for own in first])
    return x[index], labels, x[pool], y[pool]


def score(digits, guess, **options):
    truth, labels, pool_x, pool_y = digits
    return score_reconstruction(guess, truth, labels, pool_x, pool_y, 1, **options)


def class_means(labels, pool_x, pool_y):
    return torch.stack([torch.stack([pool_x[pool_y == c].mean(0) for c in row]) for row in labels])


def test_a_shuffled_exact_copy_is_recovered(digits):
    truth, labels, *_ = digits
    found = score(digits, truth.flip(1), guess_labels=labels.flip(1))
    assert found.attack.mse.tolist() == [0.0] * VICTIMS
    assert found.attack.psnr.tolist() == [120.0] * VICTIMS
    assert torch.allclose(found.attack.ssim, torch.ones(VICTIMS, dtype=torch.float64))
    assert found.label_accuracy.tolist() == found.label_overlap.tolist() == [1.0] * VICTIMS
    assert found.reading == "recovered"
    assert found.in_pool == 0


def test_the_mean_of_the_pool_scores_as_its_baseline(digits):
    truth, _, pool_x, _ = digits
    mean = pool_x.mean(0)
    found = score(digits, mean.expand_as(truth))
    for name in ("mse", "psnr", "ssim"):
        assert torch.equal(getattr(found.attack, name), getattr(found.prior_mean, name))
    expected = torch.stack([mse(mean.expand_as(own), own).mean() for own in truth])
    assert torch.allclose(found.prior_mean.mse, expected)
    alike = torch.stack([ssim(mean.expand_as(own), own, 1.0).mean() for own in truth])
    assert torch.allclose(found.prior_mean.ssim, alike)
    assert 10 < float(found.prior_mean.psnr.mean()) < 15  # see the module docstring
    assert found.reading == "no better than the prior mean"


def test_a_guess_of_the_class_alone(digits):
    _, labels, pool_x, pool_y = digits
    found = score(digits, class_means(labels, pool_x, pool_y))
    assert torch.allclose(found.attack.mse, found.class_mean.mse)
    assert (found.class_mean.mse < found.same_class.mse).all()
    assert (found.class_mean.mse < found.prior_mean.mse).all()
    # Some classes' means hardly beat the mean of all digits.
    assert set(found.levels) == {
        "no better than knowing the class",
        "no better than the prior mean",
    }


def test_half_way_to_the_truth_is_closer_than_every_baseline(digits):
    truth, labels, pool_x, pool_y = digits
    found = score(digits, 0.5 * truth + 0.5 * class_means(labels, pool_x, pool_y))
    assert torch.allclose(found.attack.mse, found.class_mean.mse / 4)
    assert found.reading == "closer than every baseline"


def test_one_recovered_victim_is_not_hidden_by_the_others(digits):
    truth, _, pool_x, _ = digits
    guess = pool_x.mean(0).expand_as(truth).clone()
    guess[1] = truth[1]
    found = score(digits, guess)
    assert found.levels == [
        "no better than the prior mean",
        "recovered",
        "no better than the prior mean",
    ]
    assert found.reading == (
        "recovered for 1 of 3 victims; no better than the prior mean for 2 of 3 victims"
    )


def test_one_recovered_sample_is_not_hidden_by_its_batch(digits):
    truth, _, pool_x, _ = digits
    guess = pool_x.mean(0).expand_as(truth).clone()
    guess[:, 0] = truth[:, 2]
    assert score(digits, guess).reading == "recovered in part"


def test_noise_is_no_better_than_the_prior_mean(digits):
    guess = torch.rand(digits[0].shape, generator=torch.Generator().manual_seed(0))
    found = score(digits, guess)
    assert (found.attack.mse > found.prior_mean.mse).all()
    assert found.reading == "no better than the prior mean"


def test_the_same_class_baseline_is_the_mean_over_its_class(monkeypatch):
    """With one sample per victim: E MSE over the pool's class, which 400 draws come close to."""
    monkeypatch.setattr(reconstruction, "DRAWS", 400)
    generator = torch.Generator().manual_seed(0)
    pool_y = torch.arange(60) % 2
    pool_x = torch.randn(60, 3, generator=generator) + 3 * pool_y[:, None]
    truth, labels = torch.randn(2, 1, 3, generator=generator), torch.tensor([[0], [1]])
    found = score_reconstruction(truth, truth, labels, pool_x, pool_y, 0).same_class
    for v in range(2):
        each = mse(pool_x[pool_y == v], truth[v].expand(30, 3))
        assert abs(float(found.mse[v] - each.mean())) < 4 * float(each.std()) / 20
        assert (
            abs(float(found.mse[v] - mse(pool_x, truth[v].expand(60, 3)).mean()))
            > 4 * float(each.std()) / 20
        )
    assert found.ssim is None


def test_baselines_are_matched_like_attacks():
    """Each class has one public sample, and it lies on the other class's truth."""
    truth = torch.tensor([[[0.0, 0.0], [5.0, 5.0]]])
    labels, pool_y = torch.tensor([[0, 1]]), torch.tensor([0, 1])
    found = score_reconstruction(truth + 1, truth, labels, truth[0].flip(0), pool_y, 0)
    assert found.same_class.mse.tolist() == found.class_mean.mse.tolist() == [0.0]
    assert found.in_pool == 2


def test_baselines_are_keyed_and_leave_the_global_stream_alone(digits):
    truth, labels, pool_x, pool_y = digits
    before = torch.get_rng_state()
    one, again, other = (
        score_reconstruction(truth, truth, labels, pool_x, pool_y, seed).same_class.mse
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_labels_are_scored_with_their_samples_and_as_counts(digits):
    truth, *_ = digits  # of classes [0, 1, 1, 2], [3, 4, 5, 5], [6, 7, 7, 8]
    guessed = torch.tensor([[0, 1, 1, 2], [4, 3, 5, 5], [6, 6, 6, 6]])
    found = score(digits, truth, guess_labels=guessed)
    assert found.label_accuracy.tolist() == [1.0, 0.5, 0.25]
    assert found.label_overlap.tolist() == [1.0, 1.0, 0.25]
    assert score(digits, truth).label_accuracy is None


def test_regression_needs_no_labels():
    generator = torch.Generator().manual_seed(0)
    truth, pool = torch.randn(2, 3, 5, generator=generator), torch.randn(40, 5, generator=generator)
    found = score_reconstruction(truth.flip(1), truth, None, pool, None, 0)
    assert torch.equal(found.class_mean.mse, found.prior_mean.mse)
    assert found.reading == "recovered"
    assert found.attack.ssim is None
    assert found.data_range == pytest.approx(float(pool.max() - pool.min()))


def test_small_images_get_the_small_window():
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(1, 1, 1, 8, 8, generator=generator)
    pool = torch.rand(9, 1, 8, 8, generator=generator)
    pool[0, 0, 0, :2] = torch.tensor([0.0, 1.0])  # the range of the data
    guess = truth.flip(-1)
    found = score_reconstruction(guess, truth, None, pool, None, 0)
    assert torch.equal(found.attack.ssim, ssim(guess[0], truth[0], 1.0, "uniform"))


def test_plain_values_for_json(digits):
    found = score(digits, digits[0], guess_labels=digits[1]).as_dict()
    read = json.loads(json.dumps(found, allow_nan=False))
    assert read["attack"]["psnr"] == 120.0
    assert read["prior_mean"]["ssim"] == pytest.approx(
        sum(read["prior_mean"]["ssim_per_victim"]) / VICTIMS
    )
    assert read["label_accuracy"] == 1.0
    assert read["reading"] == "recovered"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"truth_labels": torch.full((VICTIMS, BATCH), 11)}, "no sample of class 11"),
        ({"truth_labels": None}, "both or neither"),
        ({"pool_y": torch.zeros(3)}, "pool .* with labels"),
        ({"pool_x": torch.zeros(400, 1, 27, 28)}, "of the same shape"),
        ({"pool_x": torch.full((400, 1, 28, 28), torch.nan)}, "pool has NaN"),
        ({"pool_x": torch.zeros(400, 1, 28, 28)}, "data_range is 0.0"),
        ({"guess": torch.zeros(VICTIMS, BATCH, 784)}, "victims, batch"),
        ({"guess_labels": torch.zeros(VICTIMS)}, "one label per guess"),
    ],
)
def test_bad_input_is_refused(digits, change, words):
    truth, labels, pool_x, pool_y = digits
    given = {
        "guess": truth,
        "truth": truth,
        "truth_labels": labels,
        "pool_x": pool_x,
        "pool_y": pool_y,
        "seed": 0,
    }
    with pytest.raises(Misuse, match=words):
        score_reconstruction(**(given | change))
