"""Arrays and losses that fit a model, and clear refusals of those that do not."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.tasks.criteria import BinaryLoss, TokenLoss, logits_of
from tacit.tasks.metrics.batch import read_classes

N = 3
GRAPH = tacit.Topology.ring(N).mixing()


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def labels(*shape, classes=3):
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))


def task_of(module, x, y, **options):
    return tacit.Task(module, [(x, y)] * N, batch_size=2, **options)


def trained(task, gradients="looped", steps=3):
    return tacit.run(task, tacit.DSGT(lr=0.2), GRAPH, steps=steps, gradients=gradients).theta


class Tagger(nn.Module):
    """A class for each of five tokens."""

    def __init__(self, classes=3):
        super().__init__()
        self.embed, self.last = nn.Embedding(10, 4), nn.Linear(4, classes)

    def forward(self, x):
        return self.last(self.embed(x))


class Returning(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.linear, self.wrap = nn.Linear(4, 3), wrap

    def forward(self, x):
        return self.wrap(self.linear(x))


class TestTypes:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.uint16, torch.uint32])
    def test_whole_targets_become_int64(self, dtype):
        module, x, y = nn.Linear(4, 3), draw(6, 4), labels(6)
        task = task_of(module, x, y.to(dtype), test=(x, y.to(dtype)))
        assert torch.equal(trained(task), trained(task_of(module, x, y)))
        assert task.evaluation.y.dtype == torch.int64

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    def test_real_inputs_become_those_of_the_model(self, dtype):
        x = draw(6, 4).to(dtype)
        task = task_of(nn.Linear(4, 3), x, labels(6), test=(x, labels(6)))
        assert task.parts.arrays[0].dtype == task.evaluation.x.dtype == torch.float32
        assert trained(task).dtype == torch.float32

    def test_float32_inputs_of_a_double_model(self):
        assert trained(task_of(nn.Linear(4, 3).double(), draw(6, 4), labels(6))).dtype == (
            torch.float64
        )

    def test_real_targets_become_those_of_the_model(self):
        task = task_of(nn.Linear(4, 1), draw(6, 4), draw(6, 1).double(), loss=functional.mse_loss)
        assert task.parts.arrays[1].dtype == torch.float32
        assert trained(task).dtype == torch.float32

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
    def test_images_of_whole_numbers_become_real(self, dtype):
        x = torch.randint(256, (6, 1, 4, 4)).to(dtype)
        module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
        task = task_of(module, x, labels(6))
        assert torch.equal(task.parts.arrays[0][:6], x.float())

    def test_tokens_stay_whole(self):
        x = torch.randint(10, (6, 5), dtype=torch.int32)
        assert task_of(Tagger(), x, labels(6, 5)).parts.arrays[0].dtype == torch.int32

    def test_arrays_that_fit_are_not_copied(self):
        x, y = draw(6, 4), labels(6)
        held = tacit.tasks.parts.Parts.split((x, y), [range(3), range(3, 6)])
        task = tacit.Task(nn.Linear(4, 3), held, batch_size=2)
        assert task.parts.arrays[0] is x
        assert task.parts.arrays[1] is y


class Magnitude(nn.Module):
    """Takes complex numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x.abs())


class TestComplexNumbers:
    z = torch.complex(torch.zeros(6, 4), draw(6, 4))

    def test_they_are_not_cast_to_real_ones(self):
        message = misuse_message(task_of, nn.Linear(4, 3), self.z, labels(6))
        assert_mentions(message, "(2, 4) of complex64", "torch.view_as_real")
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), labels(6) + 0j)
        assert "targets" in message
        test = self.z, labels(6)
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), labels(6), test=test)
        assert_mentions(message, "The test data", "complex64", "float32")

    def test_models_may_take_them(self):
        task = task_of(Magnitude(), self.z, labels(6), test=(self.z, labels(6)))
        plain = tacit.Task(task.loss.flat.module.linear, [(self.z.abs(), labels(6))] * 3)
        assert task.parts.arrays[0].dtype == torch.complex64
        theta = task.initial(0, [0])[0]
        expected = plain.loss(theta, self.z.abs(), labels(6))
        assert torch.equal(task.loss(theta, self.z, labels(6)), expected)
        assert torch.isfinite(trained(task)).all()


class TestTokens:
    def test_the_loss_is_the_mean_over_tokens(self):
        x, y = torch.randint(10, (6, 5)), labels(6, 5)
        y[0, :4], y[1] = -100, -100
        module = Tagger()
        task = task_of(module, x, y, test=(x, y))
        scores = task.evaluation.average(task.initial(0, [0])[0])
        with torch.no_grad():
            output = module(x).flatten(0, 1)
        own = functional.cross_entropy(output, y.flatten())
        assert float(scores.loss) == pytest.approx(float(own), rel=1e-5)
        used = y.flatten() != -100
        right = (output.argmax(1) == y.flatten())[used]
        assert float(scores.accuracy) == pytest.approx(100 * float(right.double().mean()))
        torch.testing.assert_close(trained(task), trained(task, "stacked"))

    def test_a_batch_of_ignored_tokens_has_no_gradient(self):
        x, y = torch.randint(10, (6, 5)), torch.full((6, 5), -100)
        task = task_of(Tagger(), x, y)
        torch.testing.assert_close(trained(task), task.initial(0, range(N)))

    def test_the_loss_as_a_module_with_its_own_ignored_class(self):
        x, y = torch.randint(10, (6, 5)), labels(6, 5)
        loss = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
        task = task_of(Tagger(), x, y, loss=loss, test=(x, y))
        assert isinstance(task.loss.criterion, TokenLoss)
        theta = task.initial(0, [0])[0]
        output = task.loss.flat(theta, x)
        own = loss(output.flatten(0, 1), y.flatten())
        assert float(task.loss(theta, x, y)) == pytest.approx(float(own))
        counted = int(read_classes(task.loss.criterion, output, y).counted.sum())
        assert counted == int((y != 0).sum())

    def test_private_training_of_tokens(self):
        parts = [(torch.randint(10, (6, 5)), labels(6, 5)) for _ in range(N)]
        task = tacit.Task(Tagger(), parts, batch_size=2)
        privacy = tacit.Privacy(epsilon=5.0, delta=1e-3)
        algorithm = tacit.PrivateSGD(lr=0.1)
        run = tacit.run(task, algorithm, GRAPH, steps=2, privacy=privacy)
        assert torch.isfinite(run.theta).all()

    def test_outputs_per_pixel_are_those_of_torch(self):
        module = nn.Conv2d(1, 3, 1)
        task = task_of(module, draw(6, 1, 4, 5), labels(6, 4, 5))
        assert task.loss.criterion is functional.cross_entropy

    def test_an_unclear_output_is_refused(self):
        x, y = torch.randint(10, (6, 5)), labels(6, 5)
        message = misuse_message(task_of, Tagger(classes=5), x, y)
        assert_mentions(message, "(2, 5, 5)", "`loss` of your own")


class TestOneLogit:
    @pytest.mark.parametrize("loss", [None, nn.BCEWithLogitsLoss()])
    @pytest.mark.parametrize("flat", [False, True])
    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
    def test_two_classes(self, flat, dtype, loss):
        module = nn.Sequential(nn.Linear(4, 1), *([nn.Flatten(0)] if flat else []))
        x, y = draw(8, 4), labels(8, classes=2)
        options = {} if loss is None else {"loss": loss}
        task = task_of(module, x, y.to(dtype), test=(x, y.to(dtype)), **options)
        assert isinstance(task.loss.criterion, BinaryLoss)
        scores = task.evaluation.average(task.initial(0, [0])[0])
        with torch.no_grad():
            output = module(x).flatten()
        own = functional.binary_cross_entropy_with_logits(output, y.float())
        assert float(scores.loss) == pytest.approx(float(own))
        assert float(scores.accuracy) == 100 * float(((output > 0) == (y == 1)).double().mean())
        torch.testing.assert_close(trained(task), trained(task, "stacked"))

    def test_other_classes_are_refused(self):
        message = misuse_message(task_of, nn.Linear(4, 1), draw(6, 4), labels(6) + 1)
        assert_mentions(message, "one logit", "from 1 to 3", "0 and 1")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: {"logits": x, "hidden": x + 1},
        lambda x: SimpleNamespace(logits=x),
        lambda x: (x, x + 1),
        lambda x: [x],
    ],
    ids=["dictionary", "object", "tuple", "list"],
)
def test_models_that_return_more_than_logits(wrap):
    module, x, y = Returning(wrap), draw(6, 4), labels(6)
    task = task_of(module, x, y, test=(x, y))
    plain = task_of(module.linear, x, y, test=(x, y))
    torch.testing.assert_close(trained(task), trained(plain))
    torch.testing.assert_close(trained(task, "stacked"), trained(plain))
    theta = plain.initial(0, [0])[0]
    assert task.evaluation.average(theta).accuracy == plain.evaluation.average(theta).accuracy


def square(output, y):
    return (output - y).square().mean()


def ranking(output, times):
    """Cox's partial likelihood: a loss of pairs, which takes outputs [B, 1] and times [B]."""
    risk = output.flatten()
    at_risk = times.flatten() >= times.flatten()[:, None]
    return (risk.exp() * at_risk).sum(1).log().mean() - risk.mean()


def contrast(output, classes):
    """A loss of pairs of samples: those of one class are to be close."""
    together = classes.flatten()[:, None] == classes.flatten()
    return torch.where(together, 1, -1).mul((output - output.T).square()).mean()


def quantiles(output, y):
    return (output - y).abs().mean()


class TestBroadcasting:
    @pytest.mark.parametrize("flat", [False, True])
    @pytest.mark.parametrize(
        "loss",
        [
            functional.mse_loss,
            nn.MSELoss(),
            nn.L1Loss(reduction="sum"),
            nn.HuberLoss(),
            nn.SmoothL1Loss(),
            nn.PoissonNLLLoss(),
            lambda output, y: functional.mse_loss(output, y).sqrt(),
            square,
        ],
    )
    @pytest.mark.filterwarnings("ignore:Using a target size")
    def test_a_loss_of_all_pairs_is_refused(self, loss, flat):
        module = nn.Sequential(nn.Linear(4, 1), *([nn.Flatten(0)] if flat else []))
        given, fits = (draw(6, 1), draw(6)) if flat else (draw(6), draw(6, 1))
        # Two samples with the same target, for which both losses are the same.
        given[1] = given[0]
        message = misuse_message(task_of, module, draw(6, 4), given, loss=loss)
        assert_mentions(message, "broadcasts", "[n, 1]", "(2,)", "(2, 1)", "flatten")
        task_of(module, draw(6, 4), fits, loss=loss)

    def test_whole_numbers_as_targets(self):
        message = misuse_message(task_of, nn.Linear(4, 1), draw(6, 4), labels(6), loss=square)
        assert "broadcasts" in message

    @pytest.mark.parametrize(
        ("outputs", "y", "loss"),
        [
            (1, draw(6), lambda output, y: functional.mse_loss(output[:, 0], y)),
            (1, draw(6), lambda output, y: functional.mse_loss(output, y.view_as(output))),
            (1, draw(6), ranking),
            (1, labels(6), contrast),
            (1, labels(6), lambda output, y: output.square().mean()),
            (3, draw(6, 1), quantiles),
            (3, labels(6), nn.NLLLoss()),
            (3, labels(6), nn.MultiMarginLoss()),
            (1, labels(6, classes=1), nn.CrossEntropyLoss()),
        ],
    )
    def test_losses_of_other_shapes_are_taken(self, outputs, y, loss):
        task_of(nn.Linear(4, outputs), draw(6, 4), y, loss=loss)


class TestRefusals:
    def test_a_loss_with_parameters_of_its_own(self):
        class Tempered(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(()))

            def forward(self, output, y):
                return functional.cross_entropy(self.scale * output, y)

        loss = Tempered()
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), labels(6), loss=loss)
        assert_mentions(message, "'scale'", "requires_grad_(False)")
        task_of(nn.Linear(4, 3), draw(6, 4), labels(6), loss=loss.requires_grad_(False))

    def test_a_loss_that_is_no_function(self):
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), labels(6), loss=3)
        assert_mentions(message, "3", "function")

    def test_a_model_without_values(self):
        module = nn.Linear(4, 3, device="meta")
        assert_mentions(misuse_message(task_of, module, draw(6, 4), labels(6)), '"meta"', "CPU")

    def test_inputs_of_another_shape(self):
        message = misuse_message(task_of, nn.Linear(5, 3), draw(6, 4), labels(6))
        assert_mentions(message, "model fails on two samples", "(2, 4) of float32", "4 and 5")

    def test_named_inputs_that_the_model_does_not_take(self):
        message = misuse_message(task_of, nn.Linear(4, 3), {"x": draw(6, 4)}, labels(6))
        assert_mentions(message, "x (2, 4) of float32", "'x'")

    def test_outputs_that_the_loss_does_not_take(self):
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), draw(6, 2))
        assert_mentions(message, "loss fails", "(2, 3)", "(2, 2)", "`loss`")

    def test_a_loss_per_sample(self):
        loss = lambda output, y: functional.cross_entropy(output, y, reduction="none")  # noqa: E731
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), labels(6), loss=loss)
        assert_mentions(message, "shape (2,)", "one number")

    def test_a_loss_that_is_no_tensor(self):
        message = misuse_message(
            task_of, nn.Linear(4, 3), draw(6, 4), labels(6), loss=lambda output, y: 1.0
        )
        assert_mentions(message, "float", "one number")

    def test_classes_beyond_the_outputs(self):
        y = labels(6)
        y[5] = 3
        message = misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), y)
        assert_mentions(message, "3 outputs", "to 3", "from 0 to 2")
        y[5] = -1
        assert "from -1" in misuse_message(task_of, nn.Linear(4, 3), draw(6, 4), y)
        y[5] = -100
        task_of(nn.Linear(4, 3), draw(6, 4), y)

    def test_an_output_without_logits(self):
        for wrap in (lambda x: {"hidden": x}, lambda x: None, lambda x: ()):
            message = misuse_message(task_of, Returning(wrap), draw(6, 4), labels(6))
            assert_mentions(message, "no logits", '"logits"')
        assert "'hidden'" in misuse_message(logits_of, {"hidden": 1})
