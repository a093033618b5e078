"""The task of a configuration: its data, partition and model, or data that it generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit import data, models
from tacit.config.options import (
    call_with_options,
    check_names,
    import_object,
    validate_value,
)
from tacit.config.own_data import check_named_keys, load_own_data
from tacit.config.sections import Config, DataSection, ModelSection, TaskSection
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.core.randomness import derive_key
from tacit.data.partitions import Partition
from tacit.tasks import Objective, Task, adaptive_filtering, localization
from tacit.tasks.criteria import logits_of
from tacit.tasks.metrics.metric import Function, Metrics, find_metrics
from tacit.tasks.parts import Parts

PARTITION_OPTIONS = {"alpha": float, "k": int, "indices": list[list[int]]}
TASKS: dict[str, Callable[..., Objective]] = {
    "adaptive-filtering": adaptive_filtering,
    "localization": localization,
}


def make_training_task(
    config: Config,
    shape: Sequence[int],
    classes: int,
    parts: Parts | Sequence[tuple[Tensor, Tensor]] | data.Dataset,
    test: tuple[Tensor, Tensor] | None,
    target: data.Target | None = None,
) -> Objective:
    """Make the task of training the configured model.

    Args:
        config: The configuration.
        shape: Shape of one input.
        classes: Number of classes; 0 for a number to predict.
        parts: Inputs and classes of each client, or a dataset that knows its clients.
        test: Inputs and classes to evaluate on; None: each client's own.
        target: The number to predict, if `parts` is not a dataset, which knows it.
    """
    section, augment = config.data.augment, None
    if section is not None:
        with prefix_errors("[data.augment]"):
            augment = data.Augment(section.crop, section.flip)
            augment.check(shape)
    with prefix_errors("[model]"):
        return Task(
            make_model(config.model, shape, classes, config.run.seed),
            parts,
            target=target,
            batch_size=config.run.batch_size,
            test=test,
            init=config.model.init,
            augment=augment,
            local=config.model.local,
            local_lr=config.model.local_lr,
        )


def clip_gradients(config: Config, task: Objective) -> Objective:
    """The task with the gradient clipping of run.clip, if that is set."""
    clip = config.run.clip
    return task if clip is None else task.clipped(clip.bound, clip.norm)


def add_metrics(config: Config, task: Objective) -> Objective:
    """The task with the metrics of run.metrics, if that is set."""
    metrics = make_metrics(config)
    return task if metrics is None else task.with_metrics(metrics, "run.metrics")


def make_metrics(config: Config) -> Metrics | None:
    """The metrics of run.metrics: built-in ones, and functions by the last part of their path."""
    names = config.run.metrics
    if names is None:
        return None
    metrics: dict[str, Function | str] = {
        name.rpartition(":")[2]: import_object(name, "run.metrics") if ":" in name else name
        for name in names
    }
    find_metrics(metrics, "run.metrics")
    return metrics


def load_data(section: DataSection, folder: Path | None, clients: Any = None) -> data.Dataset:
    """Load a named dataset from its folder, or own data of so many clients."""
    if section.is_own:
        return load_own_data(section, clients)
    with prefix_errors("[data]"):
        options = list(data.describe(section.name).options)
        check_named_keys(section)
    check_names("data", section.options, [*DataSection.model_fields, *options], section.name)
    # A plugin's options may have names of keys for own data.
    declared = {key: getattr(section, key) for key in options if key in DataSection.model_fields}
    with prefix_errors("[data]"):
        dataset = data.load(
            section.name,
            folder,
            seed=section.seed,
            limit_train=section.limit_train,
            limit_test=section.limit_test,
            **{key: value for key, value in declared.items() if value is not None},
            **section.options,
        )
        if section.validation is None:
            return dataset
        return dataset.with_validation(section.validation, section.seed)


def make_partition(config: Config, dataset: data.Dataset, clients: int) -> Partition:
    """Divide the training samples; every client gets at least one batch.

    Samples that have owners stay with them.
    """
    section = config.partition
    if dataset.owners:
        if section.options or section.kind != "iid":
            problem = "[partition] divides samples, but these belong to their clients."
            raise Misuse(problem, "Remove the section.")
        if len(dataset.clients) != clients:
            raise Misuse(
                f"The data have {len(dataset.clients)} clients "
                f"({', '.join(dataset.clients[:5])}{', …' if len(dataset.clients) > 5 else ''}), "
                f"the graph has {clients}.",
                f"Set graph.clients = {len(dataset.clients)}, or leave it out.",
            )
        return Partition(dataset.owners, "own", "each client's own")
    for key, value in section.options.items():
        validate_value(f"partition.{key}", value, PARTITION_OPTIONS.get(key, Any))
    with prefix_errors("[partition]"):
        return dataset.train.partition(
            section.kind,
            clients,
            config.run.seed if section.seed is None else section.seed,
            minimum=config.run.batch_size,
            **section.options,
        )


def make_task(section: TaskSection, clients: int) -> Objective:
    """Make a task that generates its own data, for a graph with this many clients."""
    name = section.name
    if name not in TASKS:
        raise unknown_name(f"task.name = {name!r} is not a task.", name, TASKS)
    if "clients" in section.options:
        raise Misuse("task.clients is set.", "Remove it: the graph determines the clients.")
    task = call_with_options(
        "task", name, TASKS[name], section.options, clients=clients, dtype=torch.float64
    )
    if task.clients != clients:
        raise Misuse(
            f"[task]: {name} has {task.clients} clients, the graph has {clients}.",
            f"Set graph.clients = {task.clients}, or give the task as many.",
        )
    return task


def make_model(section: ModelSection, shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """Make a model for inputs of this shape; what its constructor draws depends on the seed.

    Without classes it has one output, the number to predict.
    """
    for key in ("shape", "classes") if ":" not in section.name else ():
        if key in section.options:
            raise Misuse(f"{key} is set.", "Remove it: the data determine it.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_key(seed, "model") >> 1)
        if ":" not in section.name:
            return models.build(section.name, shape, classes or 1, **section.options)
        return _make_own_model(section, shape, classes)


def _make_own_model(section: ModelSection, shape: Sequence[int], classes: int) -> nn.Module:
    """Make a user's model and check that it fits the data."""
    key = f"name = {section.name!r}"
    module = make_module(section.name, "name", section.options)
    x = torch.zeros(2, *shape, dtype=torch.float32)
    try:
        with torch.no_grad():
            output = tuple(logits_of(module(x)).shape)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(
            f"{key} fails on inputs of shape {tuple(x.shape)}: {problem}.",
            "Make it take such inputs, or choose other data.",
        ) from None
    one_number = classes in (0, 2) and output in ((len(x),), (len(x), 1))
    if output != (len(x), classes) and not one_number:
        labels = f"The data have {classes} classes" if classes else "The target is one number"
        raise Misuse(
            f"{key} gives an output of shape {output} for {len(x)} samples.",
            f"{labels}: make it ({len(x)}, {classes or 1}).",
        )
    return module


def make_module(path: str, key: str, options: Mapping[str, Any]) -> nn.Module:
    """Call the module class, or the function that returns a module, at "package.module:Name".

    Raises:
        Misuse: If it cannot be imported or does not make a module; `key` is what it is called.
    """
    make, named = import_object(path, key), f"{key} = {path!r}"
    # Before it is called: the configuration may come from someone else.
    if not (issubclass(make, nn.Module) if isinstance(make, type) else callable(make)):
        remedy = "Name a module class, or a function that returns a module."
        raise Misuse(f"{named} is not a torch.nn.Module.", remedy)
    try:
        module = make(**options)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(f"{named} cannot be made: {problem}.", "Check its options.") from None
    if not isinstance(module, nn.Module):
        raise Misuse(f"{named} does not return a torch.nn.Module.", "Name a module class.")
    return module
