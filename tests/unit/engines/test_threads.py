"""Clients on several cores: what is shared between threads, and what is not."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit.core.workers import WorkerPool, without_onednn
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks import Task
from tacit.tasks.pure import thread_safe

RING = tacit.Topology.ring(8).mixing("metropolis")


class Focal(nn.Module):
    """A criterion that keeps what it computes on itself, as people write them."""

    def forward(self, output, target):
        self.logp = output.log_softmax(1)
        self.rest = 1 - self.logp.exp()
        return functional.nll_loss(self.rest**2 * self.logp, target)


def task(module, loss=functional.cross_entropy):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(8, 24, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (8, 24), generator=generator)
    return Task(
        module.double(), list(zip(x, y, strict=True)), loss=loss, batch_size=6, init="independent"
    )


def models(workers, task, way, steps=8):
    run = Simulation(Setting(tacit.DSGT(lr=0.1), task, RING, gradients=way))
    run.pool = pool = WorkerPool(workers)
    run.here.objective.__dict__["crew"] = pool
    run.start()
    for _ in range(steps):
        run.step()
    return run.state.theta


@pytest.mark.parametrize("way", ["stacked", "looped"])
@pytest.mark.parametrize("loss", [functional.cross_entropy, Focal()], ids=["function", "object"])
def test_two_threads_give_what_one_gives(way, loss):
    given = task(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), loss)
    alone = models(1, given, way)
    torch.testing.assert_close(models(3, given, way), alone, rtol=1e-12, atol=1e-12)


def test_each_thread_has_its_own_copy_of_an_object():
    shared, seen, together = thread_safe(Focal()), [], threading.Barrier(2)

    def work():
        seen.append(shared.local())
        together.wait(60)  # both alive: the number of a thread that has ended is given again

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] is not seen[1]
    assert thread_safe(functional.cross_entropy) is functional.cross_entropy


def test_onednn_is_back_when_the_last_has_left():
    before = torch._C._get_mkldnn_enabled()
    first, second = without_onednn("cpu"), without_onednn("cpu")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch._C._get_mkldnn_enabled()
    second.__exit__(None, None, None)
    assert torch._C._get_mkldnn_enabled() == before


class Broken(Exception):
    """Raised in the middle of an iteration."""


def test_an_iteration_that_is_broken_off_leaves_no_half_state():
    calls = []

    def fragile(output, target):
        calls.append(1)
        if len(calls) > 70:
            raise Broken
        return functional.cross_entropy(output, target)

    run = Simulation(
        Setting(tacit.DSGT(lr=0.1), task(nn.Linear(6, 3), fragile), RING, gradients="looped")
    )
    run.start()
    for _ in range(3):
        run.step()
    calls.extend([1] * 40)
    with pytest.raises(Broken):
        run.step()
    assert run.state is None
    with pytest.raises(tacit.Misuse, match="iteration failed"):
        run.step()


class Diary(tacit.DSG):
    """An algorithm that keeps what it was given."""

    def step(self, s, here):
        self.kept.append((s.theta, s.theta.clone()))
        return super().step(s, here)


def test_what_an_algorithm_keeps_of_a_state_stays_as_it_was():
    algorithm = Diary(lr=0.1)
    object.__setattr__(algorithm, "kept", [])
    run = Simulation(Setting(algorithm, task(nn.Linear(6, 3)), RING, gradients="stacked"))
    run.start()
    for _ in range(8):
        run.step()
    assert all(torch.equal(kept, then) for kept, then in algorithm.kept)
