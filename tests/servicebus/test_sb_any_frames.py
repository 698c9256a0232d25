"""Whatever frames a client sends: the server answers or closes, never hangs, and goes on serving others."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from peer import BODY, Peer, still_serves

from lucius.testing.servicebus.codec import encode
from lucius.testing.servicebus.frames import AMQP, frame
from lucius.testing.servicebus.message import BATCH_FORMAT
from lucius.testing.servicebus.performatives import (
    BY_CODE,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Source,
    Target,
    Transfer,
)
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings
from lucius.testing.servicebus.types import Described, UByte, UInt, ULong, UShort

TEXT = st.sampled_from(["work", "$cbs", "work/$management"]) | st.text(max_size=3)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 300),
    TEXT,
    st.binary(max_size=5),
    st.dictionaries(TEXT, st.integers(0, 9) | TEXT, max_size=2),
    st.sampled_from([0x24, 0x25, 0x27, 0x28, 0x29, 0x1D]).flatmap(lambda code: composites(code, TEXT | st.none())),
)


RIGHT: dict[Any, st.SearchStrategy[Any]] = {kind: st.integers(0, 2).map(kind) for kind in (UInt, UShort, UByte, ULong)}
RIGHT |= {bool: st.booleans(), str: TEXT, bytes: st.binary(max_size=5), dict: st.dictionaries(TEXT, TEXT, max_size=2)}


def composites(code: int, odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Described]:
    """A performative whose fields mostly have the right types."""
    wires = [one.metadata.get("wire") for one in fields(BY_CODE[code])]
    values = st.tuples(*(odd if wire is None else st.none() | (RIGHT[wire] | RIGHT[wire] | odd) for wire in wires))
    return values.map(lambda given: Described(ULong(code), list(given)))


FRAMES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(sorted(BY_CODE)).flatmap(lambda code: composites(code, ODD)).map(encode),
    st.sampled_from(
        [
            Attach(name="a", handle=0, role=True, source=Source(address="work"), target=Target()).encoded(),
            Attach(name="b", handle=1, role=False, source=Source(), target=Target(address="work")).encoded(),
            Transfer(handle=1, delivery_id=1, delivery_tag=b"1", message_format=0).encoded() + BODY,
            Transfer(handle=1, delivery_id=1, delivery_tag=b"1", message_format=BATCH_FORMAT).encoded() + b"\x00",
            Disposition(role=True, first=0, last=2**32 - 1, settled=False, state=Accepted()).encoded(),
            Detach(handle=0, closed=True).encoded(),
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), FRAMES), max_size=8))
def test_any_frames_are_answered_or_end_the_connection(frames: list[tuple[int, bytes]]) -> None:
    unexpected: list[object] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unexpected.append(context))
        async with ServiceBusServer(NamespaceSettings({"work": QueueSettings()})) as server:
            peer = await Peer.opened(server)
            for channel, body in frames:
                peer.write(frame(AMQP, channel, body))
            peer.send(Close())
            assert await peer.closed()
            assert await still_serves(server)
            await peer.close()

    asyncio.run(play())
    assert unexpected == []
