"""Numbers to predict: standardised in training, in their own unit for users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from tacit.core.errors import Misuse
from tacit.data import Target
from tacit.tasks import Task
from tacit.tasks.client_gradients import write_stacked
from tacit.tasks.constants import sketch_of_constants
from tacit.tasks.regression import OriginalUnit, Regression

TARGET = Target("stay", 200.0, 25.0)


class OneNumber(nn.Module):
    """A user's model, whose output has no second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)[:, 0]


def data(clients: int = 2, samples: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(clients, samples, 3, generator=generator)
    y = 200 + 25 * torch.randn(clients, samples, generator=generator)
    return list(zip(x, y, strict=True))


@pytest.mark.parametrize("module", [nn.Sequential(nn.Linear(3, 1)), OneNumber()])
def test_loss_is_standardised_and_outputs_are_not(module: nn.Module) -> None:
    parts = data()
    task = Task(module, parts, target=TARGET, test=parts[0])
    (x, y), theta = parts[1], task.initial(0, [0])[0]
    output = module(x).flatten().detach()
    expected = functional.mse_loss(output, (y - 200) / 25)
    assert torch.allclose(task.loss(theta, x, y), expected, rtol=1e-4)
    scores = task.evaluation.models(theta[None], [0])
    predicted = (200 + 25 * module(parts[0][0]).flatten()).detach().double()
    actual = parts[0][1].double()
    error = predicted - actual
    known = {name: float(values[0]) for name, values in scores.metrics.items()}
    assert known == pytest.approx(
        {
            "rmse": float(error.square().mean().sqrt()),
            "baseline-rmse": float((actual - actual.mean()).square().mean().sqrt()),
            "mae": float(error.abs().mean()),
            "r2": 1 - float(error.square().sum() / (actual - actual.mean()).square().sum()),
        },
        rel=1e-5,
    )


def test_metrics_of_regressions_are_always_there() -> None:
    parts = data()
    task = Task(nn.Linear(3, 1), parts, target=TARGET, test=parts[0])
    assert task.evaluation.metric_names == ("rmse", "baseline-rmse", "mae", "r2")
    names = task.with_metrics(["mse", "mae"]).evaluation.metric_names
    assert names == ("rmse", "baseline-rmse", "mae", "r2", "mse")
    with pytest.raises(Misuse, match="'auc' is for models that predict classes"):
        task.with_metrics(["auc"])


def test_layers_keep_their_names() -> None:
    plain = Regression.of(nn.Sequential(nn.Flatten(), nn.Linear(3, 1)), TARGET)
    assert list(plain.module.state_dict()) == ["1.weight", "1.bias", "2.mean", "2.std"]
    own = Regression.of(OneNumber().double(), TARGET)
    assert own.prefix == "0."
    assert own.module[1].mean.dtype == torch.float64
    task = Task(OneNumber(), data(), target=TARGET, local=["head.bias"])
    assert task.local is not None
    assert task.local.names == ("0.head.bias",)


@pytest.mark.parametrize("loss", [functional.mse_loss, functional.l1_loss])
def test_gradients_of_layers(loss: Callable[..., torch.Tensor]) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    parts = data(clients=3)
    task = Task(module, parts, batch_size=8, target=TARGET, loss=loss)
    theta = task.initial(0, [0, 1, 2])
    arrays = tuple(torch.stack(column) for column in zip(*parts, strict=True))
    out = torch.empty_like(theta)
    write_stacked(task.loss, theta, arrays, out)
    assert torch.allclose(out, vmap(grad(task.loss))(theta, *arrays), rtol=1e-4, atol=1e-5)


def test_least_squares_in_the_unit_of_the_target() -> None:
    """Gradient descent on standardised targets ends at the solution of the original problem."""
    (x, y), *_ = data(clients=1, samples=50)
    task = Task(nn.Linear(3, 1), [(x, y)], target=TARGET)
    theta = task.initial(0, [0])[0]
    step = grad(task.loss)
    for _ in range(300):
        theta = theta - 0.3 * step(theta, x, y)
    made = np.linalg.lstsq(np.c_[x, np.ones(50)], y.numpy(), rcond=None)[0]
    found = 25 * theta.numpy() + [0, 0, 0, 200]
    assert found == pytest.approx(made, rel=1e-3)


def test_nodes_do_not_tell_each_other_their_own_unit() -> None:
    plain, frozen = (nn.Sequential(nn.Linear(3, 1)) for _ in range(2))
    frozen.register_buffer("frozen", torch.ones(3))
    for module, length in ((plain, 0), (frozen, 8)):
        one, other = (
            sketch_of_constants(Task(module, data(), target=Target("", mean)).loss)
            for mean in (0.0, 5.0)
        )
        assert one == other
        assert len(one) == length


def test_models_that_do_not_fit() -> None:
    with pytest.raises(Misuse, match=r"The target is one number.*\(2, 4\)"):
        Task(nn.Linear(3, 4), data(), target=TARGET)
    assert OriginalUnit(1.0, 2.0)({"logits": torch.ones(2)}).tolist() == [3.0, 3.0]
    exact = Regression.of(nn.Linear(3, 1).double(), Target("", 0.1)).module[1]
    assert isinstance(exact, OriginalUnit)
    assert float(exact.mean) == 0.1
