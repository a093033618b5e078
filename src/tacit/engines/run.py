"""The result of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacit.core.errors import Misuse
from tacit.core.notebooks import html_table
from tacit.engines.gradients.client_passes import BackendChoice
from tacit.engines.setting import Setting
from tacit.models.parameters import select_model
from tacit.record import run_files
from tacit.record.checkpoint import Checkpoint
from tacit.record.history import History
from tacit.record.transcript import Transcript
from tacit.tasks.flat import ModuleLoss


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a simulation.

    Attributes:
        theta: The models [N, P].
        state: The whole state of the algorithm.
        history: Metrics over time.
        gradients: The gradient backend, and why it was chosen.
        setting: What determined the run.
        transcript: Every message, if requested.
        diverged: Where a state first became NaN or infinite, if that was allowed.
        local: The local parameters [N, Q], if the task has any.
    """

    theta: Tensor
    state: Any
    history: History
    gradients: BackendChoice
    setting: Setting
    transcript: Transcript | None = None
    diverged: str | None = None
    local: Tensor | None = None

    def __repr__(self) -> str:
        clients, parameters = self.theta.shape
        return f"Run({clients} clients, {parameters:,} parameters, {self.history!r})"

    def module(self, client: int | str = "average") -> nn.Module:
        """A model of the run as a module, ready for use.

        Args:
            client: Whose model, from 0, or "average" for the mean of all models. A client's model
                has its own local parameters, the average model their mean.

        Returns:
            A copy of the module that the task was made from, on the CPU and in evaluation mode,
            with the model's parameters. Frozen parameters and buffers are those of the task;
            parameters that were tied still are. `tacit.models.merge_lora` adds adapters to their
            weights.

        Raises:
            Misuse: If the task was not made from a module, or there is no such client.

        Example:
            >>> import torch, tacit
            >>> parts = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(3)]
            >>> task = tacit.Task(torch.nn.Linear(4, 3), parts)
            >>> graph = tacit.Topology.ring(3).mixing("metropolis")
            >>> run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=5)
            >>> run.module(client=0)
            Linear(in_features=4, out_features=3, bias=True)
        """
        task = self.setting.task
        loss = task.loss
        if not isinstance(loss, ModuleLoss):
            raise Misuse(
                "The task was made from a loss, not from a module.",
                "Use run.theta, or make the task of a module: tacit.Task(module, clients).",
            )
        rows = self.theta
        if task.local is not None and self.local is not None:
            rows = task.local.join(rows, self.local)
        return loss.flat.with_weights(select_model(rows, client))

    def save(self, folder: Path | str) -> Path:
        """Write the run into a folder: models, state, history, and the transcript if there is one.

        `tacit.load` reads it, and `tacit report` and `tacit export` take the folder. Tensors are
        safetensors files and the rest is text; nothing is pickled.

        Args:
            folder: A new or empty folder.

        Returns:
            The folder.

        Raises:
            Misuse: If the folder is not empty or cannot be written.
        """
        setting, path = self.setting, Path(folder)
        last = self.history[-1]
        algorithm = setting.algorithm
        budget = algorithm.budget
        end = Checkpoint(
            self.state,
            last.step,
            last.bytes_sent,
            last.wall_seconds,
            fingerprint="",
            diverged=self.diverged,
            gradients=self.gradients.strategy,
            privacy=None
            if budget is None
            else budget.spent_facts(last.step) | {"simulated": setting.is_simulated, "repeated": 0},
            local=self.local,
        )
        facts = {
            "seed": int(setting.seed),
            "batch_size": setting.task.batch_size or "all samples",
            "device": str(setting.device),
            "gradients": self.gradients.strategy,
            "precision": setting.precision,
        }
        run_files.save(
            path,
            algorithm,
            setting.task,
            setting.graph,
            end,
            self.history,
            self.transcript,
            facts,
        )
        return path

    def _repr_html_(self) -> str:
        """What ran and the last records, for notebooks."""
        setting = self.setting
        facts = {
            "algorithm": setting.algorithm.name,
            "graph": setting.graph,
            "clients": setting.graph.clients,
            "parameters": f"{setting.task.parameters:,}",
            "seed": setting.seed,
        }
        title = "Run" if self.diverged is None else f"Run, diverged: {self.diverged}"
        return html_table(title, list(facts), [list(facts.values())], self.history._repr_html_())
