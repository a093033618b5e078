"""What turns a vector of numbers back into a model: names and shapes, as JSON and safetensors.

`model.json` has the trainable parameters in the order of the vector, which names share one of them,
the inputs and the classes. `constants.safetensors` has frozen parameters and buffers, if any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.core.storage import read_json, replacing, write_json
from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts

FORMAT = "tacit-model-1"
MODEL, CONSTANTS = "model.json", "constants.safetensors"
REMEDY = "Run or save it again."


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: its shape without the samples, and the name of its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def example(self, samples: int) -> Tensor:
        """Zeros of this shape, for so many samples."""
        return torch.zeros(samples, *self.shape, dtype=getattr(torch, self.dtype))


@dataclass(frozen=True, eq=False)
class ModelLayout:
    """The layout of a model as a vector [P], and what does not change in training.

    Attributes:
        parameters: Shape of each trainable parameter by name, in the order of the module.
        local: Names of the parameters that are each client's own; the others are shared.
        tied: Names that share a trainable parameter, and the name under which it is listed.
        constants: Frozen parameters and buffers by name.
        inputs: What the model takes.
        by_name: Whether it takes its inputs as keywords.
        outputs: Number of classes; None if it has none.
        class_names: Names of the classes, if known.
        data: What the data are, in words.
        preprocessing: How raw inputs become those of the model, as plain values.
    """

    parameters: Mapping[str, tuple[int, ...]]
    tied: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: Sequence[InputSpec] = ()
    by_name: bool = False
    outputs: int | None = None
    class_names: Sequence[str] = ()
    data: str = ""
    local: Sequence[str] = ()
    preprocessing: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: Objective,
        outputs: int | None = None,
        class_names: Sequence[str] = (),
        data: str = "",
    ) -> ModelLayout | None:
        """The layout of a task's model; None if the task has no module."""
        if not isinstance(task.loss, ModuleLoss):
            return None
        flat = task.loss.flat
        trainable = dict(zip(flat.names, map(tuple, flat.shapes), strict=True))
        tied, constants = _other_tensors(flat)
        return cls(
            trainable,
            tied,
            constants,
            _inputs(task, flat),
            bool(flat.layout.names),
            outputs,
            tuple(class_names),
            data,
            () if task.local is None else task.local.names,
            task.preprocessing,
        )

    def state_dict(self, theta: Tensor, local: Tensor | None = None) -> dict[str, Tensor]:
        """All parameters and buffers of a model by name, as a module's state_dict.

        Args:
            theta: The shared numbers [P].
            local: The local numbers [Q], if there are any.

        Raises:
            Misuse: If the layout is that of another model.
        """
        state: dict[str, Tensor] = {}
        local = torch.empty(0) if local is None else local
        for vector, is_local in ((theta, False), (local, True)):
            shapes = {n: s for n, s in self.parameters.items() if (n in self.local) == is_local}
            sizes = [math.prod(shape) for shape in shapes.values()]
            if vector.shape != (sum(sizes),):
                raise Misuse(
                    f"The model has {vector.shape[0]:,} numbers, and {MODEL} is of one of "
                    f"{sum(sizes):,}.",
                    REMEDY,
                )
            pieces = torch.split(vector.detach().cpu(), sizes)
            # Copies: views of one vector would all be stored with the whole of it.
            state |= {n: p.clone().view(shapes[n]) for n, p in zip(shapes, pieces, strict=True)}
        state = {name: state[name] for name in self.parameters}
        state |= {name: state[source] for name, source in self.tied.items()}
        return state | dict(self.constants)


def save(layout: ModelLayout, folder: Path) -> None:
    """Write model.json, and constants.safetensors if there are constants."""
    from safetensors.torch import save_file

    if layout.constants:
        # Constants may share memory, which safetensors does not allow.
        copies = {name: tensor.detach().cpu().clone() for name, tensor in layout.constants.items()}
        with replacing(folder / CONSTANTS) as part:
            save_file(copies, part)
    facts = vars(layout) | {
        "format": FORMAT,
        "constants": list(layout.constants),
        "inputs": [asdict(model_input) for model_input in layout.inputs],
    }
    write_json(folder / MODEL, facts)


def load(folder: Path) -> ModelLayout | None:
    """Read what `save` wrote; None if the folder has no model.json.

    Raises:
        Misuse: If the files are damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / MODEL
    if not path.is_file():
        return None
    facts = read_json(path, REMEDY)
    if (file_format := facts.pop("format", None)) != FORMAT:
        raise Misuse(f"{path} has the unknown format {file_format!r}.", REMEDY)
    try:
        constants = load_file(folder / CONSTANTS) if facts["constants"] else {}
        facts["constants"] = {name: constants[name] for name in facts["constants"]}
        facts["parameters"] = {name: _shape(sizes) for name, sizes in facts["parameters"].items()}
        facts["inputs"] = [
            InputSpec(model_input["name"], _shape(model_input["shape"]), model_input["dtype"])
            for model_input in facts["inputs"]
        ]
        return ModelLayout(**facts)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, SafetensorError) as problem:
        raise Misuse(f"{path} cannot be read: {problem!r}.", REMEDY) from None


def _shape(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, sizes))


def metadata(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as the only entry of a file's metadata."""
    return {"tacit": json.dumps(facts, ensure_ascii=False)}


def _other_tensors(flat: FlatModule) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Further names of trainable parameters, and all frozen parameters and buffers."""
    every = dict(flat.module.named_parameters(remove_duplicate=False))
    listed = {id(every[name]): name for name in flat.names}
    tied, constants = {}, {}
    for name, tensor in flat.module.state_dict(keep_vars=True).items():
        if name in flat.names:
            continue
        if id(tensor) in listed:
            tied[name] = listed[id(tensor)]
        elif isinstance(tensor, Tensor):
            constants[name] = tensor.detach().cpu()
    return tied, constants


def _inputs(task: Objective, flat: FlatModule) -> list[InputSpec]:
    parts = task.parts
    arrays = parts.arrays if isinstance(parts, Parts) else parts[0]  # type: ignore[index]
    names = flat.layout.names or _positional_names(flat.layout.count)
    return [
        InputSpec(name, tuple(array.shape[1:]), str(array.dtype).removeprefix("torch."))
        for name, array in zip(names, arrays, strict=False)
    ]


def _positional_names(count: int) -> list[str]:
    return ["input"] if count == 1 else [f"input{number}" for number in range(count)]
