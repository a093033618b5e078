"""A task: a model and each client's data, which the clients train on together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from tacit.core.errors import Misuse
from tacit.data.augmentation import Augment
from tacit.data.dataset import Dataset, Target
from tacit.tasks.module_task import Init, module_task
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts
from tacit.tasks.vector_task import vector_task


def Task(
    model: nn.Module | str | Tensor,
    clients: Sequence[Any] | Parts | Dataset,
    *,
    loss: str | Callable[..., Tensor] | None = None,
    batch_size: int | None = None,
    test: Any = None,
    init: Init | None = None,
    augment: Augment | None = None,
    local: Sequence[str] | None = None,
    local_lr: float | None = None,
    target: Target | None = None,
) -> Objective:
    """Train a module on each client's inputs and targets, or minimise any loss of a vector.

    Args:
        model: A module, which must be a pure function of its parameters and inputs, but for
            dropout, whose masks are drawn from keys of the samples: see `models.keyed`. Or the
            name of a model of `tacit.models`, such as "cnn2", which fits itself to the data. Or the
            first vector θ⁰ [P] of all clients, or one row per client [N, P]; then `loss` is
            `loss(theta, *arrays)` of theta [P] and a client's arrays.
        clients: One entry per client: a tuple (inputs [nᵢ, ...], targets [nᵢ, ...]), where
            inputs may be a tuple of tensors or a dictionary of them, which the module takes as
            keywords; a dictionary with inputs and "labels"; or a map-style torch Dataset of
            such samples. Or a dataset of `tacit.data.from_tables`, with the clients' names
            and test samples. Of a vector's loss: a tensor or a tuple of tensors of any shapes per
            client; a loss with exactly two parameters gets several arrays as one tuple.
        loss: `loss(output, targets)`, a mean over the batch; default: cross-entropy, which fits
            itself to outputs [B, classes], [B, tokens, classes], and one logit for two classes.
            Or a name: "cross-entropy", "binary-cross-entropy", "mse", "l1" or "huber". With a
            `target`, it is a loss of standardised numbers, by default the mean squared error.
        batch_size: Samples per gradient. None: every gradient uses all data of its client.
        test: Held-out (inputs, targets), or a list with one such pair per client; all models
            are evaluated on all of them. None: models are evaluated on their clients' own
            data.
        init: Initial models: the module's own weights ("module"), one random draw for all
            clients ("same"), or one per client ("independent"). Draws depend on the seed of
            the run. Default: "module" for modules, "same" for models by name.
        augment: Random changes of the images of every gradient; not in evaluation.
        local: Parameters that stay local: names of parameters or modules, such as ["head"], or
            patterns such as "*.bias". Each client trains its own by plain gradient steps, and
            evaluates its own model. They are never sent.
        local_lr: Step size of the local parameters; default: that of the algorithm.
        target: A number to predict, which is standardised in training: the model gets a last
            layer that turns its output into the target's unit. Default: that of the dataset.

    Returns:
        What `tacit.run` takes: an objective with a model of P parameters per client, without the
        local ones.

    Raises:
        Misuse: If the module is not pure, or model, data and options do not fit together.

    Example:
        >>> import torch, tacit
        >>> parts = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
        >>> tacit.Task(torch.nn.Linear(4, 3), parts, batch_size=10)
        Objective(5 clients, 15 parameters, batches of 10)
        >>> tacit.Task("linear", parts, batch_size=10)
        Objective(5 clients, 15 parameters, batches of 10)

        >>> def loss(theta, x):
        ...     return (theta - x).square().sum()
        >>> tacit.Task(torch.zeros(2), [torch.randn(2) for _ in range(5)], loss=loss)
        Objective(5 clients, 2 parameters, full gradients)
    """
    if isinstance(model, nn.Module | str):
        return module_task(
            model,
            clients,
            loss=loss,
            batch_size=batch_size,
            test=test,
            init=init,
            augment=augment,
            local=local,
            local_lr=local_lr,
            target=target,
        )
    _check_vector(model)
    of_modules: dict[str, Any] = {
        "test": test,
        "init": init,
        "augment": augment,
        "local": local,
        "local_lr": local_lr,
        "target": target,
    }
    for name, value in of_modules.items():
        if value is not None:
            raise Misuse(
                f"{name} is given, but the model is a vector.",
                f"Leave {name} out, or give a torch.nn.Module.",
            )
    if loss is None or isinstance(loss, str):
        given = "no loss is given" if loss is None else f"loss is {loss!r}"
        raise Misuse(
            f"The model is a vector, and {given}.",
            "Give loss(theta, *arrays), a function of the vector and a client's arrays.",
        )
    if isinstance(clients, Dataset | Parts):
        raise Misuse(
            f"The model is a vector, and the data are a {type(clients).__name__}.",
            "Give a tensor or a tuple of tensors per client, or a torch.nn.Module as model.",
        )
    return vector_task(model, clients, loss, batch_size)


def _check_vector(model: Any) -> None:
    """Raise Misuse if this cannot be a vector."""
    if callable(model) or isinstance(model, dict | None):
        kind = model.__name__ if isinstance(model, type) else f"a {type(model).__name__}"
        raise Misuse(
            f"model is {kind}.",
            "Give a torch.nn.Module, or the first vector θ⁰ [P] with a loss(theta, *arrays).",
        )


def _gone(name: str, spelling: str) -> Callable[..., Any]:
    """What a former constructor does: it raises Misuse with the present spelling."""

    def former(*arguments: Any, **options: Any) -> Any:
        raise Misuse(f"Task.{name} is gone.", f"Write {spelling}.")

    return former


Task.__dict__.update(
    from_module=_gone("from_module", "tacit.Task(module, parts, …)"),
    from_loss=_gone("from_loss", "tacit.Task(theta0, parts, loss=loss, …)"),
)
