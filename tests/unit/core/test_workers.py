import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from tacit.core.workers import WorkerPool, current_pool, torch_threads


@given(st.integers(0, 300), st.integers(1, 7), st.none() | st.integers(0, 60))
def test_cuts_cover_everything_once_in_order(count, size, largest):
    pieces = WorkerPool(size).split(count, largest)
    assert [k for piece in pieces for k in range(count)[piece]] == list(range(count))
    assert all(piece.start < piece.stop for piece in pieces)
    assert all(one.stop == other.start for one, other in pairwise(pieces))


@given(st.integers(1, 300), st.integers(1, 7), st.integers(1, 60))
def test_pieces_are_small_enough_alike_and_as_many_as_keep_all_busy(count, size, largest):
    lengths = [piece.stop - piece.start for piece in WorkerPool(size).split(count, largest)]
    assert max(lengths) <= largest
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) % size == 0 or lengths == [1] * count
    fewest = -(-count // largest)
    assert len(lengths) < fewest + size  # no more passes than needed


@given(st.integers(1, 300), st.integers(1, 7))
def test_without_a_limit_every_worker_gets_one_piece(count, size):
    assert len(WorkerPool(size).split(count)) == min(count, size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_does_everything_once(size):
    done = []
    WorkerPool(size).run(done.append, range(40))
    assert sorted(done) == list(range(40))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_calling_thread_does_the_last_piece(size):
    done = {}

    def work(piece):
        done[piece] = threading.current_thread()
        if piece == 0:
            raise ValueError("piece 0")

    with pytest.raises(ValueError, match="piece 0"):
        WorkerPool(size).run_with_caller(work, range(size))
    assert sorted(done) == list(range(size))
    assert done[size - 1] is threading.current_thread()
    assert list(done.values()).count(threading.current_thread()) == 1


def test_a_pool_works_side_by_side():
    meeting = threading.Barrier(3)
    WorkerPool(3).run(
        lambda piece: meeting.wait(timeout=30), range(3)
    )  # ends only if all three are there at once


def test_a_pool_of_one_is_the_calling_thread():
    seen = []
    WorkerPool(1).run(lambda piece: seen.append(threading.current_thread()), range(3))
    assert seen == [threading.current_thread()] * 3


def test_the_first_failure_is_raised_when_all_have_ended():
    done = []

    def work(piece):
        if piece in (1, 2):
            time.sleep(0.02 * (3 - piece))  # the second to fail is earlier in the order
            raise ValueError(f"piece {piece}")
        time.sleep(0.05)
        done.append(piece)

    with pytest.raises(ValueError, match="piece 1"):
        WorkerPool(2).run(work, range(6))
    assert sorted(done) == [0, 3, 4, 5]


def test_nothing_is_under_way_any_more_if_the_pieces_themselves_fail():
    done = []

    def pieces():
        yield from range(4)
        raise ValueError("no more")

    def work(piece):
        time.sleep(0.03)
        done.append(piece)

    with pytest.raises(ValueError, match="no more"):
        WorkerPool(2).run(work, pieces())
    assert sorted(done) == [0, 1, 2, 3]


def test_a_pool_goes_on_after_a_failure():
    pool = WorkerPool(2)
    with pytest.raises(ZeroDivisionError):
        pool.run(lambda piece: 1 / piece, range(3))
    done = []
    pool.run(done.append, range(3))
    assert sorted(done) == [0, 1, 2]


def test_one_worker_where_a_gpu_does_the_work():
    assert WorkerPool.for_device("cuda").size == 1
    assert WorkerPool.for_device().size == torch.get_num_threads()


THREADS = """
import threading, torch
from tacit.core.workers import WorkerPool, current_pool, torch_threads

def of_a_new_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return seen[0]

assert torch.get_num_threads() == 2
pool = WorkerPool.for_device()
assert pool.size == 2
meeting, inside = threading.Barrier(2), []

def work(piece):
    meeting.wait(timeout=30)
    inside.append((threading.get_ident(), torch.get_num_threads()))

pool.run(work, range(2))
print("each", len({who for who, _ in inside}), {count for _, count in inside})
print("afterwards", torch.get_num_threads(), of_a_new_thread())
with pool.exclusive():
    print("alone", torch.get_num_threads())
    inside.clear()
    pool.run(work, range(2))
    print("each", len({who for who, _ in inside}), {count for _, count in inside})
print("afterwards", torch.get_num_threads(), of_a_new_thread())
try:
    with pool.exclusive():
        raise ValueError
except ValueError:
    print("afterwards", torch.get_num_threads(), of_a_new_thread())
with pool.exclusive():
    with pool.exclusive():
        pass
    print("alone", torch.get_num_threads())
torch.set_num_threads(1)
with pool.exclusive():
    pass
print("as set", torch.get_num_threads())
"""


def test_workers_have_one_thread_each_and_no_other_has_fewer():
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env=os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "each 2 {1}",
        "afterwards 2 2",
        "alone 1",
        "each 2 {1}",
        "afterwards 2 2",
        "afterwards 2 2",
        "alone 1",
        "as set 1",
    ]


def test_torch_threads():
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("size", "count"), [(1, 3), (2, 4), (2, 5), (3, 2), (3, 7)])
def test_what_remains_after_whole_rounds_gets_all_threads(size, count):
    pool, seen = WorkerPool(size), []

    def work(piece):
        alone = threading.current_thread() is threading.main_thread()
        seen.append((piece, alone, torch.get_num_threads()))

    with torch_threads(1), pool.exclusive():
        pool.run_evenly(work, range(count))
        assert torch.get_num_threads() == 1
    assert sorted(piece for piece, *_ in seen) == list(range(count))
    whole = count - count % size
    for piece, alone, threads in seen:
        assert alone == (size == 1 or piece >= whole)
        assert threads == (size if piece >= whole else 1)


def test_loops_without_a_pool_use_that_of_the_block():
    pool = WorkerPool(2)
    inner = []
    with pool.exclusive():
        assert current_pool() is pool
        pool.run(lambda piece: inner.append(current_pool().size), range(4))
    # A worker works alone: waiting for its own pool would never end.
    assert inner == [1] * 4
    with torch_threads(1):
        assert current_pool().size == 1
