"""Processes that meet in a store that remembers the dead."""

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from tacit.core.errors import RankLost
from tacit.engines.rendezvous import rendezvous_name

PATIENCE = timedelta(seconds=20)


@pytest.fixture
def store():
    return dist.HashStore()


def together(store, ranks, late=()):
    """What each rank hears when all meet at the same time; those that are late come when the others wait."""
    heard = {}

    def go(rank):
        heard[rank] = rendezvous_name(store, rank, ranks, PATIENCE)

    threads = {rank: threading.Thread(target=go, args=(rank,)) for rank in range(ranks)}
    for rank in [rank for rank in threads if rank not in late]:
        threads[rank].start()
    if late:
        time.sleep(0.2)
    for rank in late:
        threads[rank].start()
    for thread in threads.values():
        thread.join(30)
    assert len(heard) == ranks
    return heard


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_all_hear_one_name(store, ranks):
    heard = together(store, ranks)
    assert len(set(heard.values())) == 1
    assert heard[0][1] is False


@pytest.mark.parametrize("late", [(), (0,), (1, 2)])
def test_those_who_come_after_a_restart_meet_under_a_new_name(store, late):
    before = together(store, 3)[0][0]
    after = together(store, 3, late)
    names = {name for name, _ in after.values()}
    assert len(names) == 1
    assert before not in names
    assert after[0][1] is True


def test_somebody_who_died_while_meeting_is_replaced(store):
    store.set("token/1", "0" * 32)  # came, and went before the others were there
    heard = together(store, 3, late=(1,))
    assert len({name for name, _ in heard.values()}) == 1
    assert heard[0][1] is False  # nobody had met before


def test_somebody_who_never_comes_is_waited_for_in_vain(store):
    with pytest.raises(RankLost, match="2 ranks of this run did not meet"):
        rendezvous_name(store, 0, 2, timedelta(seconds=0.2))
