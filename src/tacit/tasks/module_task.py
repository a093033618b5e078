"""Tasks that train a module: each client's data, fitted to the module and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.checks import check_choice
from tacit.core.errors import Misuse
from tacit.data.augmentation import Augment
from tacit.data.dataset import Dataset, Target
from tacit.models.registry import build
from tacit.tasks.criteria import check_loss, find_loss
from tacit.tasks.evaluation import Evaluation, LocalLoss, TestSet
from tacit.tasks.finite import check_finite
from tacit.tasks.fitting import Fit, check_augment, fit, held_out, held_out_per_client
from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit.tasks.inputs import ONE_INPUT, InputLayout, is_per_client, read_parts
from tacit.tasks.local_parameters import LocalParameters
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts, disclosure_of
from tacit.tasks.regression import Regression
from tacit.tasks.sample_draws import SampleDraws

Init = Literal["module", "same", "independent"]
Initial = Callable[[int, Sequence[int]], Tensor]
# Held-out data of each client.
ClientTests = list[tuple[Any, Tensor]]


@dataclass(frozen=True)
class _ClientData:
    """The clients' data, and what is known about them."""

    held: Parts
    layout: InputLayout
    disclosure: str
    test: Any
    target: Target | None
    classes: int | None = None
    names: tuple[str, ...] = ()
    preprocessing: Mapping[str, Any] = field(default_factory=dict)


def module_task(
    model: nn.Module | str,
    clients: Sequence[Any] | Parts | Dataset,
    *,
    loss: str | Callable[..., Tensor] | None,
    batch_size: int | None,
    test: Any,
    init: Init | None,
    augment: Augment | None,
    local: Sequence[str] | None,
    local_lr: float | None,
    target: Target | None,
) -> Objective:
    """The task of training a module; see `Task`."""
    if init is None:
        init = "same" if isinstance(model, str) else "module"
    check_choice("init", init, ("module", "same", "independent"))
    criterion = functional.cross_entropy if loss is None else find_loss(loss)
    check_loss(criterion)
    data = _read(clients, test, target)
    if len(data.held.arrays) <= data.layout.count:
        raise Misuse("The clients' data are inputs only.", "Give (inputs, targets) per client.")
    module = _build(model, data) if isinstance(model, str) else model
    if data.target is not None:
        own_loss = None if criterion is functional.cross_entropy else criterion
        regression = Regression.of(module, data.target, own_loss)
        module, criterion = regression.module, regression.loss
        local = local and [f"{regression.prefix}{name}" for name in local]
    flat = FlatModule(module, data.layout)
    if init != "module":
        # Fails now, not in the middle of a run, if a layer cannot draw its parameters.
        flat.random_weights("trial")
    fitted = fit(flat, data.held.arrays, criterion)
    held = replace(data.held, arrays=fitted.convert(data.held.arrays))
    if augment is not None:
        check_augment(augment, held, data.layout)
    module_loss = ModuleLoss(flat, fitted.criterion)
    check_finite(module_loss, held)
    evaluation, client_tests = _evaluation(data, module_loss, fitted, held)
    task = Objective(
        replace(module_loss, keyed=flat.keyed),
        held if batch_size is not None else [held.of(i) for i in range(held.clients)],
        batch_size,
        _initial(flat, init),
        flat.width,
        flat.dtype,
        evaluation,
        draws=SampleDraws(augment, flat.keyed),
        names=data.names,
        client_tests=client_tests,
        disclosure=data.disclosure,
        preprocessing=data.preprocessing,
    ).checked()
    return _with_local(task, flat, local, local_lr)


def _read(clients: Any, test: Any, target: Target | None) -> _ClientData:
    """The data of all clients, from any form in which they may be given."""
    if isinstance(clients, Parts):
        return _ClientData(clients, ONE_INPUT, "", test, target)
    if not isinstance(clients, Dataset):
        given, layout = read_parts(clients)
        return _ClientData(Parts.concatenate(given), layout, disclosure_of(given), test, target)
    if not clients.owners:
        raise Misuse(
            f"The samples of dataset {clients.name} have no owners.",
            'Divide them: dataset.train.parts("iid", clients=5).',
        )
    if test is None:
        test = clients.client_tests or (clients.test.x, clients.test.y)
    return _ClientData(
        Parts.split((clients.train.x, clients.train.y), clients.owners),
        ONE_INPUT,
        clients.disclosure,
        test,
        target or clients.target,
        clients.classes,
        clients.clients,
        clients.preprocessing,
    )


def _build(name: str, data: _ClientData) -> nn.Module:
    """The model of this name for inputs and targets like the clients'."""
    inputs, targets = data.held.arrays[0], data.held.arrays[-1]
    outputs = data.classes
    if data.target is not None:
        outputs = 1
    elif outputs is None:
        if targets.is_floating_point() or not len(targets):
            raise Misuse(
                f"The targets do not say how many outputs the model {name!r} needs.",
                "Give a torch.nn.Module, or a `target` to predict one number.",
            )
        outputs = int(targets.max()) + 1
    # The weights of a named model do not depend on what was drawn before, nor change it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(name, inputs.shape[1:], outputs)


def _evaluation(
    data: _ClientData, loss: ModuleLoss, fitted: Fit, held: Parts
) -> tuple[Evaluation, ClientTests | None]:
    """How models are evaluated, and each client's own test data if there are such."""
    if data.test is None:
        return LocalLoss(loss, held), None
    client_tests = None
    evaluation: Evaluation
    if is_per_client(data.test):
        evaluation, client_tests = held_out_per_client(loss.flat, fitted, data.test, held)
    else:
        evaluation = held_out(loss.flat, fitted, data.test, held)
    if isinstance(evaluation, TestSet) and data.target is not None:
        evaluation = evaluation.with_metrics(())
    return evaluation, client_tests


def _initial(flat: FlatModule, init: Init) -> Initial:
    """The initial models [n, P] of clients, by the seed of a run."""

    def initial(seed: int, clients: Sequence[int]) -> Tensor:
        if init == "independent":
            return torch.stack([flat.random_weights(seed, "init", client) for client in clients])
        weights = flat.weights() if init == "module" else flat.random_weights(seed, "init")
        return weights.repeat(len(clients), 1)

    return initial


def _with_local(
    task: Objective, flat: FlatModule, local: Sequence[str] | None, local_lr: float | None
) -> Objective:
    """The task in which the parameters with these names stay with each client."""
    if local is not None and (isinstance(local, str) or not isinstance(local, Sequence)):
        raise Misuse(f"local is {local!r}.", 'Give a list of names, such as ["head"].')
    if not local:
        return task
    split = LocalParameters.of(flat, task.initial, local, local_lr)

    def shared(seed: int, clients: Sequence[int]) -> Tensor:
        return split.shared_of(task.initial(seed, clients))

    return replace(task, initial=shared, parameters=len(split.shared), local=split)
