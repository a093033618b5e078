"""Fine-tune a transformer between five clients by low-rank adapters: `python examples/lora.py`.

The model is first trained in one place on public sequences. Then five clients adapt it to a task of
their own by LPPA: only the adapters and a new last layer travel. It takes less than a minute.
"""

import torch
from torch import nn

import tacit

CLIENTS, LENGTH, TOKENS, FEATURES = 5, 12, 20, 32
torch.manual_seed(0)


class Encoder(nn.Module):
    """A small transformer that classifies sequences of tokens, with dropout as usual."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, FEATURES)
        layer = nn.TransformerEncoderLayer(FEATURES, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(FEATURES, classes)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        present = attention_mask[..., None]
        return {"logits": self.head((hidden * present).sum(1) / present.sum(1))}


def sequences(count: int) -> dict[str, torch.Tensor]:
    """Sequences of 6 to 12 random tokens, padded."""
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1))
    return {
        "input_ids": torch.randint(TOKENS, (count, LENGTH)),
        "attention_mask": (torch.arange(LENGTH) < lengths).long(),
    }


def most_frequent(data: dict[str, torch.Tensor], groups: int, shift: int) -> torch.Tensor:
    """Which group of tokens is the most frequent, among groups numbered from `shift` on."""
    group = (data["input_ids"] + shift) % groups
    counts = nn.functional.one_hot(group, groups) * data["attention_mask"][..., None]
    return counts.sum(1).argmax(1)


# Public training in one place: four groups of tokens.
model = Encoder(classes=4)
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(150):
    batch = sequences(64)
    optimiser.zero_grad()
    output = model(**batch)["logits"]
    nn.functional.cross_entropy(output, most_frequent(batch, 4, shift=0)).backward()
    optimiser.step()

# The clients' own task: two other groups. Each client has 200 sequences.
model.head = nn.Linear(FEATURES, 2)
adapted = tacit.models.lora(model, rank=4, alpha=8, train=["head"])
parts = []
for _ in range(CLIENTS):
    own = sequences(200)
    parts.append((own, most_frequent(own, 2, shift=1)))
held_out = sequences(500)
test = (held_out, most_frequent(held_out, 2, shift=1))

task = tacit.Task(adapted, parts, batch_size=20, test=test)
graph = tacit.Topology.ring(CLIENTS).mixing("metropolis")
whole = sum(p.numel() for p in adapted.parameters())
print(f"{task.parameters:,} of {whole:,} parameters are trained and travel")

run = tacit.run(task, tacit.LPPA(lr=0.1), graph, steps=100, record_every=25)
for record in run.history:
    print(f"step {record.step:4d}: accuracy {record.accuracy.mean:.1f} %")

# The average model as a plain module, with the adapters merged into its weights.
merged = tacit.models.merge_lora(tacit.models.load_weights(adapted, run.theta.mean(0))).eval()
with torch.no_grad():
    right = merged(**held_out)["logits"].argmax(1) == test[1]
print(f"accuracy of the merged average model: {100 * right.float().mean():.1f} %")
