"""Runs read back from their folders, whether `tacit run` or `Run.save` wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacit.config.loading import make_config
from tacit.config.tasks import make_model
from tacit.core.errors import Misuse
from tacit.core.storage import read_json
from tacit.data import Target
from tacit.experiment.folder import RunFolder
from tacit.models.parameters import select_model
from tacit.record import checkpoint, model_files, transcript_files
from tacit.record.history import History
from tacit.record.model_files import ModelLayout
from tacit.record.transcript import Transcript
from tacit.tasks.regression import Regression


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A run as its folder has it.

    Attributes:
        folder: The folder.
        config: The sections of its config.toml.
        history: Metrics over time.
        state: The tensors of the algorithm's state in the newest checkpoint, by name.
        step: The iteration of that checkpoint.
        layout: Names and shapes of the model's parameters; None if it is not a module.
        summary: What summary.json has; empty if the run has not ended.
        local: The local parameters [N, Q], if there are any.
    """

    folder: Path
    config: dict[str, Any]
    history: History
    state: dict[str, Tensor]
    step: int
    layout: ModelLayout | None
    summary: dict[str, Any]
    local: Tensor | None = None

    def __repr__(self) -> str:
        clients, parameters = self.theta.shape
        where = f"{str(self.folder)!r}, {clients} clients, {parameters:,} parameters"
        return f"SavedRun({where}, {self.history!r})"

    @property
    def theta(self) -> Tensor:
        """The models [N, P]."""
        return self.state["theta"]

    @cached_property
    def transcript(self) -> Transcript | None:
        """The recorded messages; None if the folder has none."""
        if not (self.folder / "transcript.json").is_file():
            return None
        return transcript_files.load(self.folder)[0]

    def state_dict(self, client: int | str = "average") -> dict[str, Tensor]:
        """A model as the `state_dict` of its module, with frozen parameters and buffers.

        Args:
            client: Whose model, by number from 0 or by name, or "average" for the mean of all.

        Raises:
            Misuse: If the run did not train a module, or there is no such client.
        """
        names = self.summary.get("names") or ()
        local = None if self.local is None else select_model(self.local, client, names)
        return self._layout().state_dict(select_model(self.theta, client, names), local)

    def module(self, client: int | str = "average", module: nn.Module | None = None) -> nn.Module:
        """A model as a module in evaluation mode.

        Args:
            client: Whose model, by number from 0 or by name, or "average" for the mean of all.
            module: A module of the run's architecture, which is changed. A run of `tacit run`
                needs none: the module is made as its configuration says, which imports a model of
                your own.

        Raises:
            Misuse: If the architecture is not known or does not fit, or there is no such client.
        """
        state = self.state_dict(client)
        made: Any = self._architecture() if module is None else module
        if not isinstance(made, nn.Module):
            raise Misuse(f"module is a {type(made).__name__}.", "Give a torch.nn.Module.")
        try:
            made.load_state_dict(state)
        except RuntimeError as problem:
            raise Misuse(
                f"The model in {self.folder} does not fit a {type(made).__name__}: "
                f"{' '.join(str(problem).split())}.",
                "Give a module of the architecture that was trained.",
            ) from None
        made.eval()
        return made

    def _layout(self) -> ModelLayout:
        if self.layout is None:
            raise Misuse(
                f"{self.folder} has no model.json, so the names of the parameters are not known.",
                "Use theta, or run it again with a module.",
            )
        return self.layout

    def _architecture(self) -> nn.Module:
        layout = self._layout()
        is_regression = "target" in layout.preprocessing
        if "python" in self.config or (layout.outputs is None and not is_regression):
            raise Misuse(
                f"The run in {self.folder} was made in Python, whose modules are not stored.",
                "Give a module of its architecture: module(client, module=MyModel()), or "
                "`tacit export --module package.module:MyModel`, a class or a function without "
                "arguments.",
            )
        config = make_config(self.config, origin=str(self.folder / "config.toml"))
        shape = layout.inputs[0].shape
        made = make_model(config.model, shape, layout.outputs or 0, config.run.seed)
        # The mean and deviation of the target are among the stored tensors.
        return Regression.of(made, Target("")).module if is_regression else made


def load(folder: Path | str) -> SavedRun:
    """Read a run that `tacit run` or `Run.save` wrote. Reading it executes nothing.

    Args:
        folder: The folder of the run.

    Returns:
        The models `theta` [N, P], history, configuration, and the transcript if it was recorded.

    Raises:
        Misuse: If the folder is not that of a run, or files of it are missing or damaged.

    Example:
        >>> import tempfile, torch, tacit
        >>> graph = tacit.Topology.ring(3).mixing("metropolis")
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.randn(3, 2))
        >>> run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=50)
        >>> saved = tacit.load(run.save(tempfile.mkdtemp()))
        >>> torch.equal(saved.theta, run.theta), saved.step
        (True, 50)
    """
    given: Any = folder
    if not isinstance(given, str | Path):
        raise Misuse(f"folder is a {type(given).__name__}.", "Give the name of a run's folder.")
    path = Path(folder)
    files = RunFolder(path)
    config = files.read_sections()
    state, facts = checkpoint.read_latest(files.checkpoints)
    local = state.pop(checkpoint.LOCAL, None)
    if "theta" not in state or state["theta"].ndim != 2:
        raise Misuse(f"The checkpoint in {path} has no models.", "Run it again.")
    return SavedRun(
        path,
        config,
        files.read_history(),
        state,
        int(facts["step"]),
        model_files.load(path),
        read_json(files.summary) if files.summary.exists() else {},
        local,
    )
