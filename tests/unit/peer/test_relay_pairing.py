import asyncio

import pytest

from tacit.peer.relay.pairing import MAX_REQUESTS, MAX_WAITING, Pairing

LONG = 60.0


@pytest.fixture
def discarded():
    return []


@pytest.fixture
def pairing(discarded):
    return Pairing(discarded.append)


def test_the_newest_connection_is_taken_first(pairing):
    async def play():
        pairing.add("b", 1)
        pairing.add("b", 2)
        assert (pairing.count(), pairing.names()) == (2, ["b"])
        taken = [await pairing.take("a", "b", LONG), await pairing.take("c", "b", LONG)]
        assert taken == [2, 1]
        assert (pairing.count(), pairing.names()) == (0, [])

    asyncio.run(play())


def test_requests_get_connections_in_turn_and_only_of_the_member_that_they_name(pairing):
    async def play():
        requests = [asyncio.ensure_future(pairing.take("a", "b", LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        pairing.add("c", "of c")
        for number in range(3):
            pairing.add("b", number)
        assert await asyncio.gather(*requests) == [0, 1]
        assert pairing.names() == ["b", "c"]

    asyncio.run(play())


def test_a_request_ends_after_its_time_and_the_next_connection_is_kept(pairing):
    async def play():
        assert await pairing.take("a", "b", 0.0) is None
        pairing.add("b", 1)
        assert pairing.count() == 1

    asyncio.run(play())


def test_a_caller_that_left_does_not_get_a_connection(pairing, discarded):
    async def play():
        early, late = (asyncio.ensure_future(pairing.take("a", "b", LONG)) for _ in range(2))
        await asyncio.sleep(0)
        early.cancel()
        await asyncio.gather(early, return_exceptions=True)
        pairing.add("b", 1)
        late.cancel()  # it got the connection, but did not see that yet
        await asyncio.gather(late, return_exceptions=True)
        assert late.cancelled()
        assert discarded == [1]
        assert pairing.count() == 0

    asyncio.run(play())


def test_a_member_keeps_only_so_many_connections(pairing, discarded):
    for number in range(MAX_WAITING + 3):
        pairing.add("b", number)
    pairing.add("c", "of c")
    assert discarded == [0, 1, 2]
    assert pairing.count() == MAX_WAITING + 1
    pairing.remove("b", MAX_WAITING)
    pairing.remove("b", "unknown")
    assert pairing.count() == MAX_WAITING


def test_a_caller_has_only_so_many_requests(pairing):
    async def play():
        requests = []
        while pairing.may_request("a"):
            requests.append(asyncio.ensure_future(pairing.take("a", "b", LONG)))
            await asyncio.sleep(0)
        assert len(requests) == MAX_REQUESTS
        assert pairing.may_request("c")
        pairing.add("b", 1)
        assert await requests[0] == 1
        assert pairing.may_request("a")
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    asyncio.run(play())
