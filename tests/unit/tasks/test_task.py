import functools

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from support.gradient_ways import looped
from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Misuse
from tacit.tasks import Task
from tacit.tasks.evaluation import LocalLoss, TestSet
from tacit.tasks.parts import Parts


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fit(theta, x, y):
    return (x @ theta - y).square().mean()


def xy(sizes=(4, 4, 4), width=3):
    return [(draw(size, width, seed=k), draw(size, seed=k + 20)) for k, size in enumerate(sizes)]


def labelled(sizes=(8, 8, 8)):
    return [(draw(size, 3, seed=k), torch.arange(size) % 2) for k, size in enumerate(sizes)]


def gradient(task, client=1):
    theta = draw(task.parameters, seed=77)[None]
    part = task.parts.of(client) if isinstance(task.parts, Parts) else task.parts[client]
    return looped(task.loss, theta, tuple(array[None] for array in part))


class TestFromLoss:
    def test_all_ways_to_give_the_parts_are_one(self):
        tuples = Task(torch.zeros(3), xy(), loss=fit)
        lists = Task(torch.zeros(3), [list(part) for part in xy()], loss=fit)
        arrays = Task(torch.zeros(3), [tuple(a.numpy() for a in part) for part in xy()], loss=fit)
        datasets = Task(torch.zeros(3), [TensorDataset(*part) for part in xy()], loss=fit)
        for task in (lists, arrays, datasets):
            assert torch.equal(gradient(task), gradient(tuples))

    def test_a_part_can_be_one_tensor(self):
        task = Task(
            draw(3), [draw(3, seed=k) for k in range(2)], loss=lambda theta, x: (theta * x).sum()
        )
        torch.testing.assert_close(gradient(task)[0], draw(3, seed=1))

    def test_a_loss_of_two_arguments_gets_a_tuple_whole(self):
        def whole(theta, part):
            x, y = part
            return fit(theta, x, y)

        expected = gradient(Task(torch.zeros(3), xy(), loss=fit))
        assert torch.equal(gradient(Task(torch.zeros(3), xy(), loss=whole)), expected)
        batched = Task(torch.zeros(3), xy(), loss=whole, batch_size=4)
        assert torch.equal(gradient(batched), expected)

    def test_defaults_and_starred_arguments_do_not_make_a_loss_of_two(self):
        expected = gradient(Task(torch.zeros(3), xy(), loss=fit))

        def starred(theta, *part):
            return fit(theta, *part)

        def with_default(theta, x, y, scale=1.0):
            return scale * fit(theta, x, y)

        for loss in (starred, with_default, functools.partial(with_default, scale=1.0)):
            assert torch.equal(gradient(Task(torch.zeros(3), xy(), loss=loss)), expected)

    def test_theta0_is_one_for_all_or_one_for_each(self):
        one, each = draw(3), draw(3, 3, seed=4)
        assert torch.equal(Task(one, xy(), loss=fit).initial(0, [0, 2]), torch.stack([one, one]))
        assert torch.equal(Task(each, xy(), loss=fit).initial(9, [0, 2]), each[[0, 2]])

    def test_theta0_is_copied(self):
        theta0 = torch.zeros(3)
        task = Task(theta0, xy(), loss=fit)
        theta0.fill_(5)
        task.initial(0, [0]).fill_(7)
        assert not task.initial(0, [0]).any()
        each = Task(torch.zeros(3, 3), xy(), loss=fit)
        each.initial(0, [0, 1, 2]).fill_(7)
        assert not each.initial(0, [0]).any()

    def test_theta0_that_was_being_differentiated(self):
        task = Task(torch.zeros(3, requires_grad=True), xy(), loss=fit)
        assert not task.initial(0, [0]).requires_grad

    def test_type_and_width_come_from_theta0(self):
        task = Task(
            torch.zeros(3).double(), [tuple(a.double() for a in part) for part in xy()], loss=fit
        )
        assert (task.dtype, task.parameters, task.clients) == (torch.float64, 3, 3)

    def test_models_are_judged_by_their_own_loss(self):
        task = Task(torch.zeros(3), xy(), loss=fit)
        assert isinstance(task.evaluation, LocalLoss)
        theta = draw(1, 3)
        expected = float(fit(theta[0], *xy()[2]))
        assert task.evaluation.models(theta, [2]).loss.tolist() == pytest.approx([expected])


class TestStepsPerEpoch:
    @pytest.mark.parametrize(
        ("sizes", "batch_size", "steps"),
        [((8, 8), 2, 4), ((8, 8), 3, 2), ((4, 12), 4, 2), ((3, 3), 3, 1), ((8, 8), None, 1)],
    )
    def test_is_how_often_the_average_client_fills_a_batch(self, sizes, batch_size, steps):
        assert (
            Task(torch.zeros(3), xy(sizes), loss=fit, batch_size=batch_size).steps_per_epoch
            == steps
        )


class TestFromModule:
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_all_start_from_the_modules_weights(self, batch_size):
        module = nn.Linear(3, 2)
        task = Task(module, labelled(), batch_size=batch_size)
        own = nn.utils.parameters_to_vector(module.parameters()).detach()
        assert torch.equal(task.initial(0, [0, 1]), torch.stack([own, own]))
        assert torch.equal(task.initial(1, [2]), own[None])
        assert (task.clients, task.parameters, task.dtype) == (3, 8, torch.float32)

    def test_all_start_from_one_keyed_draw(self):
        module = nn.Linear(3, 2)
        task = Task(module, labelled(), init="same")
        start = task.initial(0, [0, 1, 2])
        assert torch.equal(start[0], start[1])
        assert torch.equal(start[:1], task.initial(0, [2]))
        assert not torch.equal(start[:1], task.initial(1, [0]))
        assert not torch.equal(start[0], nn.utils.parameters_to_vector(module.parameters()))

    def test_each_starts_from_its_own_keyed_draw(self):
        task = Task(nn.Linear(3, 2), labelled(), init="independent")
        start = task.initial(0, [0, 1, 2])
        assert len({tuple(row.tolist()) for row in start}) == 3
        assert torch.equal(task.initial(0, [2, 0]), start[[2, 0]])
        assert not torch.equal(start, task.initial(1, [0, 1, 2]))

    def test_an_own_draw_needs_layers_that_can_draw(self):
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(3))

            def forward(self, x):
                return x * self.scale

        with pytest.raises(Misuse, match=r"'scale'.*reset_parameters"):
            Task(Scale(), labelled(), init="independent")
        assert torch.equal(Task(Scale(), labelled()).initial(0, [0]), torch.ones(1, 3))

    def test_with_a_test_set_models_are_judged_on_it(self):
        module, test = nn.Linear(3, 2), (draw(11, 3, seed=5), torch.arange(11) % 2)
        task = Task(module, labelled(), test=test)
        assert isinstance(task.evaluation, TestSet)
        scores = task.evaluation.models(task.initial(0, [0]), [0])
        output = module(test[0]).detach()
        assert float(scores.loss[0]) == pytest.approx(
            float(functional.cross_entropy(output, test[1])), rel=1e-5
        )
        assert float(scores.accuracy[0]) == pytest.approx(
            100 * float((output.argmax(1) == test[1]).float().mean()), rel=1e-5
        )
        dataset = Task(module, labelled(), test=TensorDataset(*test))
        assert torch.equal(dataset.evaluation.models(task.initial(0, [0]), [0]).loss, scores.loss)

    def test_without_one_on_their_own_data(self):
        module, parts = nn.Linear(3, 2), labelled()
        task = Task(module, parts)
        scores = task.evaluation.models(task.initial(0, [1]), [1])
        expected = float(functional.cross_entropy(module(parts[1][0]).detach(), parts[1][1]))
        assert scores.loss.tolist() == pytest.approx([expected], rel=1e-5)

    def test_any_loss_of_output_and_targets(self):
        module, parts = (
            nn.Linear(3, 1),
            [(draw(6, 3, seed=k), draw(6, 1, seed=k + 9)) for k in range(2)],
        )
        task = Task(module, parts, loss=functional.mse_loss)
        functional.mse_loss(module(parts[1][0]), parts[1][1]).backward()
        expected = nn.utils.parameters_to_vector([p.grad for p in module.parameters()])
        own = task.initial(0, [1])
        x, y = parts[1]
        torch.testing.assert_close(looped(task.loss, own, (x[None], y[None]))[0], expected)

    def test_parts_can_share_arrays(self):
        x, y = draw(10, 3), torch.arange(10) % 2
        task = Task(nn.Linear(3, 2), Parts.split((x, y), [[0, 5, 7], [1, 2]]), batch_size=2)
        assert task.clients == 2
        assert task.parts.arrays[0] is x


class TestNames:
    def test_a_model_by_name_fits_the_data(self):
        task = Task("linear", labelled(), batch_size=4)
        assert task.parameters == 3 * 2 + 2
        first, second = task.initial(0, [0, 1])
        assert torch.equal(first, second)
        assert not torch.equal(task.initial(1, [0]), task.initial(0, [0]))

    def test_a_model_by_name_takes_nothing_from_the_generator(self):
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        Task("mlp", labelled(), batch_size=4)
        assert torch.equal(torch.rand(2), expected)

    def test_a_loss_by_name(self):
        numbers = [(x, x.sum(1, keepdim=True)) for x, _ in labelled()]
        named = Task(nn.Linear(3, 1), numbers, loss="mse")
        assert named.loss.criterion is functional.mse_loss

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"model": "lineer"}, ["'lineer'", "Did you mean 'linear'?"]),
            ({"loss": "mze"}, ["'mze'", "Did you mean 'mse'?"]),
            ({"model": "linear", "clients": xy()}, ["how many outputs", "target"]),
            ({"model": nn.Linear}, ["model is Linear", "torch.nn.Module"]),
            ({"model": None}, ["model is a NoneType"]),
            ({"model": torch.zeros(3)}, ["no loss is given", "loss(theta, *arrays)"]),
            ({"model": torch.zeros(3), "loss": "mse"}, ["loss is 'mse'"]),
            ({"model": torch.zeros(3), "loss": fit, "test": xy()[0]}, ["test is given", "vector"]),
            ({"model": torch.zeros(3), "loss": fit, "init": "same"}, ["init is given"]),
            ({"init": "random"}, ['"module", "same" or "independent"']),
            ({"batch_size": 0}, ["batch_size is 0"]),
            ({"batch_size": 2.0}, ["batch_size is 2.0"]),
            ({"clients": [draw(4, 3)]}, ["inputs, targets"]),
            ({"test": draw(4, 3)}, ["inputs, targets"]),
            ({"test": (draw(4, 3), torch.zeros(4), torch.zeros(4))}, ["inputs, targets"]),
        ],
    )
    def test_what_does_not_fit_is_said(self, options, words):
        given = {"model": nn.Linear(3, 2), "clients": labelled()} | options
        assert_mentions(misuse_message(Task, **given), *words)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"model": torch.zeros(())}, ["theta0 has shape ()", "for 3 clients"]),
            ({"model": torch.zeros(2, 3)}, ["theta0 has shape (2, 3) for 3 clients"]),
            ({"model": torch.zeros(3, 3, 1)}, ["theta0 has shape (3, 3, 1) for 3 clients"]),
            ({"model": torch.zeros(3, dtype=torch.int64)}, ["floating-point"]),
            ({"model": torch.zeros(3, dtype=torch.complex64)}, ["floating-point"]),
            ({"clients": []}, ["no clients"]),
            ({"clients": [], "batch_size": 2}, ["no clients"]),
            ({"clients": [(draw(3),), (draw(3), draw(3))]}, ["different numbers of arrays"]),
            ({"batch_size": -1}, ["batch_size is -1"]),
            ({"batch_size": 1.5}, ["batch_size is 1.5"]),
            ({"batch_size": "4"}, ["batch_size is '4'"]),
            (
                {"clients": [(draw(3), draw(2))], "batch_size": 1},
                ["without batch_size, takes arrays of different lengths"],
            ),
        ],
    )
    def test_what_does_not_fit_a_vector_is_said(self, options, words):
        given = {"model": torch.zeros(3), "clients": xy(), "loss": fit} | options
        assert_mentions(misuse_message(Task, **given), *words)

    @pytest.mark.parametrize("old", ["from_module", "from_loss"])
    def test_old_spellings_say_the_new_one(self, old):
        message = misuse_message(getattr(Task, old), nn.Linear(3, 2), labelled(), batch_size=4)
        assert_mentions(message, f"Task.{old} is gone", "tacit.Task(")
