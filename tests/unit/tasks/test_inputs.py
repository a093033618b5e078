"""Several and named inputs, from tuples, dictionaries and Datasets."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.tasks.inputs import InputLayout, read_part, read_parts

X, Z, Y = torch.randn(6, 3), torch.randn(6, 2), torch.arange(6) % 2


class Samples(Dataset):
    def __init__(self, make, count=6):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        return self.make(k)


NAMED = InputLayout(2, ("x", "z"))
FORMS = {
    "several": (((X, Z), Y), InputLayout(2)),
    "list": (([X.numpy(), Z], Y), InputLayout(2)),
    "named": (({"x": X, "z": Z}, Y), NAMED),
    "labels": ({"x": X, "labels": Y, "z": Z}, NAMED),
    "label": ({"x": X, "z": Z, "label": Y}, NAMED),
    "dataset of tuples": (Samples(lambda k: ((X[k], Z[k]), int(Y[k]))), InputLayout(2)),
    "dataset of pairs": (Samples(lambda k: ({"x": X[k], "z": Z[k]}, Y[k])), NAMED),
    "dataset of dictionaries": (
        Samples(lambda k: {"x": X[k].numpy(), "z": Z[k], "labels": int(Y[k])}),
        NAMED,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_arrays(form):
    part, layout = FORMS[form]
    arrays, found = read_part(part, 0)
    assert found == layout
    assert all(map(torch.equal, arrays, (X, Z, Y)))


def test_one_input_is_as_before():
    for part in ((X, Y), TensorDataset(X, Y), Samples(lambda k: (X[k].tolist(), Y[k]))):
        arrays, layout = read_part(part, 0)
        assert layout == InputLayout()
        assert all(map(torch.equal, arrays, (X, Y)))
    # A list of numbers is one array.
    (one, other), layout = read_part(([[1.0, 2.0], [3.0, 4.0]], [0, 1]), 0)
    assert (one.shape, other.tolist(), layout) == ((2, 2), [0, 1], InputLayout())


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x, z):
        return self.a(x) + 2 * self.b(z)


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("form", FORMS)
def test_models_with_several_inputs_train_and_are_evaluated(form, batch_size):
    part, _ = FORMS[form]
    module = Both()
    task = tacit.Task(module, [part] * 3, batch_size=batch_size, test=part)
    graph = tacit.Topology.ring(3).mixing()
    runs = [
        tacit.run(task, tacit.DSGT(lr=0.3), graph, steps=4, gradients=how)
        for how in ("stacked", "looped")
    ]
    torch.testing.assert_close(runs[0].theta, runs[1].theta)
    scores = task.evaluation.average(task.initial(0, [0])[0])
    with torch.no_grad():
        output = module(X, Z)
    assert float(scores.loss) == pytest.approx(float(nn.functional.cross_entropy(output, Y)))
    assert float(scores.accuracy) == pytest.approx(
        100 * float((output.argmax(1) == Y).mean(dtype=float))
    )


def test_samples_with_several_inputs_are_clipped_one_by_one():
    parts = [copy.deepcopy(FORMS["named"][0]) for _ in range(3)]
    task = tacit.Task(Both(), parts, batch_size=2)
    graph = tacit.Topology.ring(3).mixing()
    algorithm = tacit.PrivateSGD(lr=0.1)
    privacy = tacit.Privacy(epsilon=5.0, delta=1e-3)
    run = tacit.run(task, algorithm, graph, steps=2, privacy=privacy)
    assert torch.isfinite(run.theta).all()


def test_attacks_say_that_they_need_one_input():
    task = tacit.Task(Both(), [FORMS["named"][0]] * 3, batch_size=2)
    keep = tacit.Keep(insides=(1,), theta0=True)
    graph = tacit.Topology.ring(3).mixing()
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=2, transcript=keep)
    found = tacit.audit(run, "curious(1)", heat_map=False)
    assert any("one input" in note for note in found.notes)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (DataLoader(TensorDataset(X, Y)), ["client 4", "DataLoader", "`dataset`"]),
        ({"x": X, "targets": Y}, ["'x', 'targets'", '"labels"']),
        ({"labels": Y}, ["'labels'"]),
        (Samples(lambda k: (torch.zeros(k + 1), 0)), ["different shapes", "(1,)", "(6,)", "Pad"]),
        (Samples(lambda k: (X[k], Y[k]), count=0), ["no samples"]),
        (7, ["is a int"]),
        ((["a", "b"], Y), ["client 4", "list", "no array"]),
        (Samples(lambda k: ("image", 0)), ["client 4", "str", "transform"]),
        (([[1.0, 2.0], [3.0]], Y), ["one shape"]),
        (
            Samples(lambda k: (X[k], Y[k])[: 1 + k % 2]),
            ["client 4 has 2 entries in sample 1", "one entry in sample 0"],
        ),
        (
            Samples(lambda k: {"x": X[k], "labels": Y[k]} if k < 2 else {"labels": Y[k]}),
            ["the keys 'labels' in sample 2", "'labels', 'x' in sample 0"],
        ),
        (Samples(lambda k: ({"x" if k else "z": X[k]}, Y[k])), ["'x' in sample 1", "'z' in"]),
        (Samples(lambda k: {"x": X[k], "labels": 0} if k else (X[k], 0)), ["the keys", "2 entr"]),
        (Samples(lambda k: ((X[k], Z[k])[k % 2 :], 0)), ["one entry in sample 1", "2 entries"]),
        (Samples(lambda k: (X[k], Y[k]), count=7), ["client 4 fails at sample 6", "IndexError"]),
    ],
)
def test_what_is_no_data_is_refused(part, words):
    assert_mentions(misuse_message(read_part, part, 4), *words)


def test_an_error_of_a_dataset_is_kept():
    with pytest.raises(tacit.Misuse) as caught:
        read_part(Samples(lambda k: 1 / k), 2)
    assert_mentions(str(caught.value), "client 2 fails at sample 0", "ZeroDivisionError")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_named_inputs_of_samples_may_have_any_order():
    swapped = Samples(lambda k: dict(sorted({"x": X[k], "labels": Y[k]}.items(), reverse=k % 2)))
    (x, y), _ = read_part(swapped, 0)
    assert torch.equal(x, X)
    assert torch.equal(y, Y)


def test_inputs_without_as_many_targets_are_refused():
    message = misuse_message(tacit.Task, nn.Linear(3, 2), [(X, Y[:5])] * 2)
    assert_mentions(message, "client 0 have [6, 5] samples", "as many targets as inputs")


def test_clients_with_other_inputs_are_refused():
    one, other = ({"x": X, "z": Z}, Y), ({"x": X, "w": Z}, Y)
    assert "different" in misuse_message(read_parts, [one, other])
    assert "no clients" in misuse_message(read_parts, [])
    for parts in (DataLoader(TensorDataset(X, Y)), {"x": X}, X, 3):
        assert "one entry per client" in misuse_message(read_parts, parts)
    # Anything else that can be iterated over.
    assert len(read_parts(zip(X.split(3), Y.split(3), strict=True))[0]) == 2


def test_a_test_set_of_another_form_is_refused():
    parts = [FORMS["named"][0]] * 2
    for test in ((X, Y), ({"x": X, "w": Z}, Y), ((X, Z), Y)):
        assert "held-out" in misuse_message(tacit.Task, Both(), parts, test=test)
    assert "shape" in misuse_message(tacit.Task, Both(), parts, test=({"x": X, "z": Z[:, :1]}, Y))


def test_named_arrays_of_numpy():
    arrays, _ = read_part(({"x": np.zeros((6, 3)), "z": Z}, Y.numpy()), 0)
    assert arrays[0].dtype == torch.float64
