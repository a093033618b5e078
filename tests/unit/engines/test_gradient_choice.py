import pytest
import torch
from torch import nn

import tacit
from tacit import DSGT, Topology
from tacit.core.errors import Misuse
from tacit.engines.gradients import client_passes as backends
from tacit.engines.gradients.client_passes import BackendChoice
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend, agree
from tacit.gradients.stacked import Stacked
from tacit.tasks import Task


def smooth(theta, x):
    return (theta * x).square().mean()


def forked(theta, x):
    """Control flow that depends on the data, so that clients cannot go together."""
    return (theta * x).sum() if float(x.sum()) > 0 else (theta * x).square().sum()


def task_of(loss, clients=3, width=4):
    parts = [torch.linspace(-1, 2, width) + k for k in range(clients)]
    return Task(torch.ones(width), parts, loss=loss)


def choice_for(task, requested="auto"):
    ids = list(range(task.clients))
    return backends.choose_backend(
        task, ids, task.loader(torch.tensor(ids), 0, "cpu"), 0, "cpu", requested
    )


def test_clients_go_together_where_they_can_and_the_choice_is_always_the_same():
    choice = choice_for(task_of(smooth))
    assert choice == BackendChoice("stacked", "all clients of a pass at once")
    assert choice_for(task_of(smooth)) == choice


def test_a_loss_that_needs_a_loop_is_looped_and_right():
    task = task_of(forked)
    choice = choice_for(task)
    assert choice.strategy == "looped"
    assert "the model uses the value (float) of a tensor" in choice.reason
    loader = task.loader(torch.arange(3), 0, "cpu")
    theta = torch.full((3, 4), 2.0)
    got = HostedObjective(task, [0, 1, 2], loader, choice.strategy, 0, "cpu").grad(theta, 0)
    for row, (x,) in enumerate(task.parts):
        expected = x if x.sum() > 0 else 2 * 2.0 * x.square()
        torch.testing.assert_close(got[row], expected)


class Leaky:
    """A loss in which clients see each other: what a rule must never do."""

    def __call__(self, theta, x):
        if not isinstance(theta, Stacked):
            return smooth(theta, x)
        return theta.like(((theta.rows - theta.rows.mean(0)) * x.rows).square().mean(1))


class Wrong(Leaky):
    """A loss with other gradients for all clients at once."""

    def __call__(self, theta, x):
        own = smooth(theta, x)
        return 1.1 * own if isinstance(theta, Stacked) else own


@pytest.mark.parametrize("loss", [Leaky(), Wrong()], ids=["leaky", "wrong"])
def test_gradients_that_are_not_those_of_a_loop_are_looped(loss):
    choice = choice_for(task_of(loss))
    assert choice.strategy == "looped"
    assert "gradients would be others" in choice.reason
    with pytest.raises(Misuse, match=r"\"stacked\", but .*others.*\"looped\" or \"auto\""):
        choice_for(task_of(loss), "stacked")


def test_another_client_must_not_change_gradients():
    """Even if those of the first client and of the last one are right."""

    class Mixes(Leaky):
        def __call__(self, theta, x):
            own = smooth(theta, x)
            if not isinstance(theta, Stacked):
                return own
            middle = torch.zeros(len(theta.rows)).index_fill_(0, torch.tensor([1]), 1.0)
            return own + own.like(middle * theta.rows[0].square().sum() * theta.rows.sum(1))

    assert "gradients would be others" in choice_for(task_of(Mixes())).reason


class Gated(nn.Module):
    """Loses the gradient of a part that contributes next to nothing in the beginning."""

    def __init__(self):
        super().__init__()
        self.inside, self.outside = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.inside(x)
        return 2 * self.outside(x) + 1e-3 * (y.detach() if isinstance(y, Stacked) else y)


def test_a_gradient_that_is_small_in_the_beginning_is_compared_too():
    parts = [(torch.randn(5, 4), torch.randint(4, (5,))) for _ in range(3)]
    assert "gradients would be others" in choice_for(Task(Gated(), parts)).reason
    task = Task(Gated(), parts, batch_size=2)
    found = SampleBackend.first_usable(task, task.initial(0, [0])[0], parts[0])
    assert found.reason == "gradients in one pass are not those of single samples"


def test_parts_of_other_sizes_are_tried_too():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x if len(x) != 7 else x * x.mean().item())

    parts = [(torch.randn(size, 4), torch.randint(4, (size,))) for size in (5, 5, 7)]
    assert "(item)" in choice_for(Task(Branches(), parts)).reason


def test_what_cannot_be_measured_is_looped():
    class Derived(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.func.grad(lambda z: self.layer(z).tanh().sum())(x)

    parts = [(torch.randn(5, 4), torch.randint(4, (5,))) for _ in range(3)]
    assert "one by one" in choice_for(Task(Derived(), parts)).reason


@pytest.mark.parametrize("requested", ["stacked", "looped"])
def test_a_requested_way_is_used(requested):
    assert choice_for(task_of(smooth), requested).strategy == requested


@pytest.mark.parametrize("word", ["layered", "batched"])
def test_earlier_words_name_the_new_ones(word):
    with pytest.raises(Misuse, match=r"no more.*\"auto\".*\"stacked\".*\"looped\""):
        choice_for(task_of(smooth), word)


def test_an_unknown_way_is_refused():
    with pytest.raises(Misuse, match=r"'fast'.*\"auto\", \"stacked\" or \"looped\""):
        choice_for(task_of(smooth), "fast")


def test_gradients_are_compared_parameter_by_parameter():
    expected = torch.cat([torch.full((90,), 1.0), torch.full((10,), 0.05)])
    found = expected.clone()
    assert agree(found, expected, [90, 10], 0.01, 0.0)
    found[90:] *= -1
    # The whole gradient is off by 3 % only, but one parameter has the opposite sign.
    assert agree(found, expected, [100], 0.05, 0.0)
    assert not agree(found, expected, [90, 10], 0.05, 0.001)
    # Where a parameter's gradient is rounding only, it does not count.
    noise = torch.cat([torch.full((90,), 1.0), torch.full((10,), 1e-7)])
    assert agree(torch.cat([noise[:90], -noise[90:]]), noise, [90, 10], 0.01, 1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_numbers_do_not_agree_with_those_that_are(bad):
    expected = torch.ones(4)
    assert not agree(torch.full((4,), bad), expected, [4], 0.01, 1e-5)


def test_a_loss_of_several_numbers_is_refused():
    task = Task(
        torch.zeros(3), [torch.ones(3), torch.zeros(3)], loss=lambda theta, x: (theta - x).square()
    )
    with pytest.raises(Misuse, match=r"shape \(3,\).*Return one number"):
        tacit.run(task, DSGT(lr=0.1), Topology.ring(2).mixing("metropolis"), steps=1)


def test_a_loss_that_draws_at_random_is_refused():
    def shaky(theta, x):
        return (theta * x).sum() + torch.rand(())

    with pytest.raises(Misuse, match="loss draws from a hidden random stream"):
        tacit.run(task_of(shaky), DSGT(lr=0.1), Topology.ring(3).mixing("metropolis"), steps=1)


def test_one_client_goes_alone():
    assert choice_for(task_of(smooth, clients=1)).strategy == "looped"
