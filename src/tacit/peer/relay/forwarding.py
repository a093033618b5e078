"""Forwards bytes between two connections, with bounded buffers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

CHUNK_BYTES = 1 << 16
# Of each connection; a reader stops reading the socket when it holds twice as much.
BUFFER_BYTES = 1 << 17
CLOSE_SECONDS = 5.0  # for the last bytes to be sent


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def forward(
    one: Connection, other: Connection, count: Callable[[int], None] = lambda size: None
) -> None:
    """Forward bytes in both directions until one end closes; then close both.

    Args:
        one: A connection.
        other: Another one.
        count: Called with the number of bytes forwarded, each time.
    """
    pumps = [
        asyncio.ensure_future(_pump(one.reader, other.writer, count)),
        asyncio.ensure_future(_pump(other.reader, one.writer, count)),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        for each in (one, other):
            abort(each.writer)
        raise
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await asyncio.gather(close(one.writer), close(other.writer))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]
) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            count(len(data))
            writer.write(data)
            await writer.drain()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection after its last bytes, or without them if its other end does not read."""
    with suppress(OSError):
        writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()
        finally:
            abort(writer)


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once."""
    # The first releases of Python 3.11 raise it for a TLS connection that is closed already.
    with suppress(AttributeError):
        writer.transport.abort()
