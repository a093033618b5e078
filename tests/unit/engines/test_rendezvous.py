"""Processes that agree on a name in a store that still has the entries of dead ones."""

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from tacit.core.errors import RankLost
from tacit.engines.rendezvous import agree_on_name

TIMEOUT = timedelta(seconds=20)


@pytest.fixture
def store():
    return dist.HashStore()


def agree(store, ranks, late=()):
    """What each rank gets; late ranks start when the others already wait."""
    results = {}

    def run(rank):
        results[rank] = agree_on_name(store, rank, ranks, TIMEOUT)

    threads = {rank: threading.Thread(target=run, args=(rank,)) for rank in range(ranks)}
    for rank in [rank for rank in threads if rank not in late]:
        threads[rank].start()
    if late:
        time.sleep(0.2)
    for rank in late:
        threads[rank].start()
    for thread in threads.values():
        thread.join(30)
    assert len(results) == ranks
    return results


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_all_agree_on_one_name(store, ranks):
    results = agree(store, ranks)
    assert len(set(results.values())) == 1
    assert results[0][1] is False


@pytest.mark.parametrize("late", [(), (0,), (1, 2)])
def test_a_restart_gets_a_new_name(store, late):
    before = agree(store, 3)[0][0]
    after = agree(store, 3, late)
    names = {name for name, _ in after.values()}
    assert len(names) == 1
    assert before not in names
    assert after[0][1] is True


def test_a_process_that_died_before_the_agreement_is_replaced(store):
    # Started, and died before the others were there.
    store.set("token/1", "0" * 32)
    results = agree(store, 3, late=(1,))
    assert len({name for name, _ in results.values()}) == 1
    assert results[0][1] is False


def test_a_missing_process_is_an_error_after_the_timeout(store):
    with pytest.raises(RankLost, match="2 ranks of this run did not connect"):
        agree_on_name(store, 0, 2, timedelta(seconds=0.2))
