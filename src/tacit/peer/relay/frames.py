"""What members and a relay say to each other before bytes are forwarded.

A frame is a JSON object after its length in four bytes (little-endian). A member sends one request:

    wait             until another member asks for this one; the relay sends `ping` meanwhile, then
                     `connected` with the other's name, which the member answers with `ready`
    connect (to)     to a member that waits
    log (size)       the operator's log follows, which may be newer than the relay's

The relay answers `waiting`, `connected`, `received` or `refused`. After `connected` all bytes
belong to the two members.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 12


class BadFrame(Exception):
    """What was received is no frame, or not the expected one."""


async def read_frame(reader: asyncio.StreamReader, seconds: float) -> dict[str, Any]:
    """The next frame; it has a `kind`.

    Raises:
        BadFrame: The bytes are no frame.
        OSError: The connection has ended, or nothing came in time (TimeoutError).
    """
    try:
        async with asyncio.timeout(seconds):
            size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
            if size > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame that claims {size:,} bytes")
            body = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the other end has closed the connection") from None
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict) or not isinstance(frame.get("kind"), str):
        raise BadFrame(f"{size} bytes that are no frame")
    return frame


async def write_frame(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    body = json.dumps({"kind": kind, **fields}).encode()
    writer.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)
    await writer.drain()
