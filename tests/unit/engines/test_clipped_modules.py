"""One sample changes a sum of clipped gradients by at most the bound, whatever the model does."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.tasks.poisson import PoissonSample

CLIENTS, SAMPLES, BOUND, SEED = 2, 10, 0.05, 5
DRAWN = [0, 3, 4, 9, 10, 12, 19]


class TiedTokens(nn.Module):
    """Predicts tokens by the weights that embed them, with samples as the second dimension."""

    def __init__(self):
        super().__init__()
        self.embed, self.drop = nn.Embedding(10, 8, padding_idx=0), nn.Dropout(0.3)
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, 0.2)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.inner(self.drop(self.embed(x).transpose(0, 1)))).transpose(0, 1)


def chain():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten(),
        nn.Linear(36, 3),
    )  # fmt: skip


def training(name):
    torch.manual_seed(0)
    if name == "tied tokens":
        tokens = [torch.randint(0, 10, (SAMPLES, 5)) for _ in range(CLIENTS)]
        return tacit.Task(TiedTokens(), [(x, x.flip(1)) for x in tokens], batch_size=4)
    module = chain() if name == "augmented" else tacit.models.lora(chain(), rank=2)
    augment = tacit.Augment(crop=2, flip=True) if name == "augmented" else None
    parts = [(torch.randn(SAMPLES, 1, 8, 8), torch.arange(SAMPLES) % 3) for _ in range(CLIENTS)]
    return tacit.Task(module, parts, batch_size=4, augment=augment)


def objective(task, way):
    loader = task.loader(torch.arange(CLIENTS), SEED, "cpu")
    found = HostedObjective(task, list(range(CLIENTS)), loader, "looped", SEED, "cpu")
    sums = replace(found.clipped_sums, backend=SampleBackend.of(task, way))
    vars(found)["clipped_sums"] = sums
    return found


def sums(hosted, theta, drawn):
    counts = [sum(index // SAMPLES == client for index in drawn) for client in range(CLIENTS)]
    sizes = torch.full((CLIENTS,), SAMPLES)
    sample = PoissonSample(torch.tensor(drawn), torch.tensor(counts), sizes, 0.5, number=3)
    return hosted.clipped_sum_of(theta, sample, BOUND).double()


@pytest.mark.parametrize("way", ["taped", "looped"])
@pytest.mark.parametrize("name", ["augmented", "adapters", "tied tokens"])
def test_leaving_one_sample_out(name, way):
    task = training(name)
    hosted = objective(task, way)
    theta = (task.initial(SEED, [0]) + 0.1 * torch.randn(1, task.parameters)).expand(CLIENTS, -1)
    total = sums(hosted, theta, DRAWN)
    for left_out in DRAWN:
        change = total - sums(hosted, theta, [index for index in DRAWN if index != left_out])
        own = left_out // SAMPLES
        assert 0 < float(change[own].norm()) <= BOUND * (1 + 1e-6)
        assert not change[1 - own].any()


class Encoder(nn.Module):
    """Attention by a layer, and by a function with a mask that hides all from the last token."""

    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        x = self.inner(x)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        mask[-1] = False
        seen = nn.functional.scaled_dot_product_attention(x, x, x, mask)
        causal = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.5)
        return self.out((seen + causal).mean(1))


# Torch warns where vmap falls back to a loop.
@pytest.mark.filterwarnings("error")
def test_attention_of_single_samples_is_taped_as_it_is():
    torch.manual_seed(0)
    parts = [(torch.randn(SAMPLES, 5, 8), torch.arange(SAMPLES) % 3) for _ in range(CLIENTS)]
    task = tacit.Task(Encoder(), parts, batch_size=4)
    theta = task.initial(0, [0])[0]
    found, expected = (
        torch.cat([x.rows() for x in SampleBackend.of(task, way).gradients(theta, parts[0])], 1)
        for way in ("taped", "looped")
    )
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
