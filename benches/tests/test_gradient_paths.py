"""No model of a kind that people train is computed in a loop."""

import pytest
import torch

import tacit
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.client_passes import choose_backend
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit_benches.models import KINDS

CLIENTS, BATCH = 3, 4


@pytest.mark.parametrize("name", KINDS)
def test_models_that_people_train_take_one_pass(name):
    kind = KINDS[name]
    x, y = kind.samples(CLIENTS * BATCH)
    parts = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    task = tacit.Task(kind.module(), parts, batch_size=BATCH, init="module")
    loader = task.loader(torch.arange(CLIENTS), 0, "cpu")
    choice = choose_backend(task, range(CLIENTS), loader, 0, "cpu", pool=WorkerPool(1))
    assert choice.strategy == "stacked", choice.reason
    theta = task.initial(0, [0])[0]
    backend = SampleBackend.first_usable(task, theta, (x[:2], y[:2]))
    assert (backend.way, backend.reason) == ("taped", "")
