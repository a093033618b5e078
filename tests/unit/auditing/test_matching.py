import itertools

import pytest
import torch

from tacit.auditing.scoring.images import match, pairwise_mse, reorder
from tacit.core.errors import Misuse


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_pairwise_mse_by_loops():
    guess, truth = draw(2, 3, 1, 4, 5), draw(2, 3, 1, 4, 5, seed=1)
    found = pairwise_mse(guess, truth)
    for v, i, j in itertools.product(range(2), range(3), range(3)):
        assert float(found[v, i, j]) == pytest.approx(
            float((guess[v, i] - truth[v, j]).square().mean()), rel=1e-12
        )


def test_the_matching_is_the_best_of_all_permutations():
    guess, truth = (
        draw(6, 5, 3),
        draw(6, 5, 3, seed=1),
    )  # low dimension: many near ties for a greedy choice
    order = match(guess, truth)
    for v in range(6):
        costs = {
            p: float((guess[v, list(p)] - truth[v]).square().sum())
            for p in itertools.permutations(range(5))
        }
        assert tuple(order[v].tolist()) == min(costs, key=costs.get)


def test_shuffled_batches_are_put_in_order_victim_by_victim():
    truth = draw(3, 6, 2, 4)
    shuffles = torch.stack(
        [torch.randperm(6, generator=torch.Generator().manual_seed(v)) for v in range(3)]
    )
    guess = reorder(truth, shuffles) + 0.01 * draw(3, 6, 2, 4, seed=9)
    order = match(guess, truth)
    assert torch.equal(reorder(shuffles, order), torch.arange(6).expand(3, 6))
    assert torch.allclose(reorder(guess, order), truth, atol=0.1)


def test_nearly_exact_guesses_are_distinguished():
    """Where ‖g‖² + ‖t‖² − 2⟨g, t⟩ would be rounding: two samples 1e-7 apart and far from zero."""
    truth = (1000 + torch.tensor([0.0, 1e-7, 2e-7], dtype=torch.float64))[None, :, None].expand(
        1, 3, 4
    )
    guess = truth.flip(1)
    assert match(guess, truth).tolist() == [[2, 1, 0]]
    assert float(pairwise_mse(guess, truth)[0, 0, 0]) == pytest.approx(4e-14, rel=1e-4)


@pytest.mark.parametrize(
    ("guess", "truth", "words"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, 4), "victims, batch"),
        (torch.zeros(3, 4), torch.zeros(3, 4), "victims, batch"),
        (torch.zeros(0, 3, 4), torch.zeros(0, 3, 4), "nothing empty"),
        (
            torch.tensor([[[0.0]], [[torch.nan]]]),
            torch.zeros(2, 1, 1),
            "guess for victim 1 has NaN",
        ),
        (torch.zeros(1, 1, 1), torch.full((1, 1, 1), torch.inf), "truth for victim 0"),
    ],
)
def test_bad_batches_are_refused(guess, truth, words):
    with pytest.raises(Misuse, match=words):
        match(guess, truth)
