import pytest
import torch
from torch import nn

import tacit
from tacit.core.errors import Misuse


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4, bias=False)
        self.twin = nn.Linear(4, 4, bias=False)
        self.twin.weight = self.body.weight
        self.norm = nn.LayerNorm(4)
        self.header = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.header(self.norm(self.twin(self.body(x)))))


def task(local, **options):
    torch.manual_seed(4)
    draw = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(8, 4, generator=draw), torch.randint(3, (8,), generator=draw))
        for _ in range(3)
    ]
    return tacit.Task(Net(), parts, batch_size=4, local=local, **options)


@pytest.mark.parametrize(
    ("local", "names"),
    [
        (["head"], ("head.weight", "head.bias")),
        (["head", "norm"], ("norm.weight", "norm.bias", "head.weight", "head.bias")),
        (["head.bias"], ("head.bias",)),
        (["*.bias"], ("norm.bias", "header.bias", "head.bias")),
        (["body", "twin"], ("body.weight",)),
    ],
)
def test_names_modules_and_patterns(local, names):
    found = task(local)
    whole = task(None)
    assert found.local.names == names
    assert found.parameters + found.local.count == whole.parameters
    assert found.whole.parameters == whole.parameters
    assert f"{found.local.count} local ones" in repr(found)


def test_joined_rows_are_the_whole_model():
    found, whole = task(["norm", "head"]), task(None)
    rows = whole.initial(0, range(3)) + torch.arange(3.0)[:, None]
    split = found.local
    assert torch.equal(split.join(split.shared_of(rows), split.local_of(rows)), rows)
    assert torch.equal(split.join(split.shared_of(rows[0]), split.local_of(rows[0])), rows[0])
    start = found.initial(0, range(3))
    assert torch.equal(start, split.shared_of(whole.initial(0, range(3))))


def test_independent_starts_are_independent_in_both_parts():
    found = task(["head"], init="independent")
    whole = found.whole.initial(7, [0, 1])
    assert not torch.equal(*found.local.local_of(whole))
    assert torch.equal(found.initial(7, [0, 1]), found.local.shared_of(whole))


@pytest.mark.parametrize(
    ("local", "message"),
    [
        (["nose"], "no parameter"),
        (["*"], "nothing would travel"),
        (["twin"], "tied to 'body.weight'"),
        (["body"], "tied to 'twin.weight'"),
        ("head", "list of names"),
        ([""], "list of names"),
        ([3], "list of names"),
    ],
)
def test_bad_names_are_said(local, message):
    with pytest.raises(Misuse, match=message):
        task(local)


def test_a_bad_step_size_is_said():
    with pytest.raises(Misuse, match="local_lr"):
        task(["head"], local_lr=-1.0)


GRAPH = tacit.Topology.ring(3).mixing("metropolis")


def test_modules_saved_runs_and_evaluation_have_own_local_parameters(tmp_path):
    run = tacit.run(task(["head"]), tacit.DSGT(lr=0.3), GRAPH, steps=5)
    x = torch.randn(6, 4)
    own = [run.module(client) for client in range(3)]
    assert not torch.equal(own[0].head.weight, own[1].head.weight)
    assert torch.equal(own[2].head.bias, run.local[2, -3:])
    average = run.module("average")
    torch.testing.assert_close(average.head.bias, run.local[:, -3:].mean(0))
    saved = tacit.load(run.save(tmp_path / "run"))
    assert torch.equal(saved.local, run.local)
    assert torch.equal(saved.theta, run.theta)
    for client in (0, "average"):
        torch.testing.assert_close(saved.module(client, Net())(x), run.module(client)(x))
    # The history evaluates each client's own model; the consensus is about what is shared.
    last = run.history[-1]
    parts = run.setting.task.parts
    with torch.no_grad():
        losses = [
            float(nn.functional.cross_entropy(own[k](parts.of(k)[0]), parts.of(k)[1]))
            for k in range(3)
        ]
    assert last.loss.mean == pytest.approx(sum(losses) / 3)
    distance = (run.theta - run.theta.mean(0)).square().sum(1).mean().sqrt()
    assert last.consensus_distance == pytest.approx(float(distance))


def test_the_run_without_local_parameters_is_as_before():
    run = tacit.run(task(None), tacit.DSGT(lr=0.3), GRAPH, steps=5)
    other = tacit.run(task([]), tacit.DSGT(lr=0.3), GRAPH, steps=5)
    assert run.local is None
    assert torch.equal(run.theta, other.theta)


def test_local_heads_beat_a_shared_model_on_each_clients_own_data():
    """Clients that disagree about the labels: one shared head cannot fit them all."""
    draw = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 6, generator=draw) * 2

    def samples(client, count):
        kind = torch.randint(4, (count,), generator=draw)
        x = centres[kind] + 0.5 * torch.randn(count, 6, generator=draw)
        return x, (kind + client) % 4

    train = [samples(client, 60) for client in range(4)]
    test = [samples(client, 200) for client in range(4)]
    graph = tacit.Topology.ring(4).mixing("metropolis")

    def accuracies(local):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        made = tacit.Task(model, train, batch_size=20, local=local)
        run = tacit.run(made, tacit.DSGT(lr=0.2), graph, steps=150)
        right = []
        for client, (x, y) in enumerate(test):
            right.append(float((run.module(client)(x).argmax(1) == y).float().mean()))
        return right

    shared, personal = accuracies(None), accuracies(["2"])
    assert all(own > 0.95 for own in personal)
    assert all(own > common + 0.3 for own, common in zip(personal, shared, strict=True))
