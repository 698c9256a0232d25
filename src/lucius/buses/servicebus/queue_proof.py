"""Which messages are still queued, proved by peeking.

Service Bus shows every message of a subscription with its sequence number and the number of deliveries that are over,
not whether it is locked now. It delivers in the order of sequence numbers. So a message that has never been delivered
proves that everything behind it has been taken a lock's length ago at most, if at all: the lane is behind. Where a
message stands is learned once, by reading on from where this process was last; after that, one message is peeked for
all that are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable

from azure.servicebus import ServiceBusReceivedMessage

from lucius.buses.servicebus.browsing import PAGE, Browsing, Place
from lucius.buses.servicebus.held import HeldMessages
from lucius.buses.servicebus.messages import id_of
from lucius.ports.bus import DeliveryRef

READ_MAX = 20_000
"""Messages that one question reads to find those that it asks about."""
KNOWN_MAX = 200_000


class _Subscription:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """The sequence number of each message that has been read."""
        self.read_to = 0


class QueueProof:
    def __init__(self, browsing: Browsing, held: HeldMessages) -> None:
        self._browsing = browsing
        self._held = held
        self._read: dict[tuple[str, str], _Subscription] = {}

    async def still_queued(self, topic: str, name: str, refs: Iterable[DeliveryRef]) -> set[DeliveryRef]:
        """Of one subscription's messages, those that wait. Raises `BusUnavailable`."""
        asked = {ref.message_id: ref for ref in refs if ref not in self._held and not self._held.is_noted(ref)}
        if not asked:
            return set()
        place = (topic, name, False)
        read = self._read.setdefault((topic, name), _Subscription())
        if any(message_id not in read.numbers for message_id in asked):
            await self._read_on(place, read, set(asked))
        wanted = sorted((read.numbers[one], ref) for one, ref in asked.items() if one in read.numbers)
        return await self._present(place, wanted)

    async def _read_on(self, place: Place, read: _Subscription, asked: set[str]) -> None:
        missing = asked - read.numbers.keys()
        limit = READ_MAX
        while missing and limit > 0:
            page = await self._browsing.page(place, read.read_to + 1, PAGE)
            if not page:
                break
            for message in page:
                message_id = id_of(message)
                if message_id is not None:
                    read.numbers[message_id] = message.sequence_number or 0
                    missing.discard(message_id)
            read.read_to = page[-1].sequence_number or read.read_to
            limit -= len(page)
        if len(read.numbers) > KNOWN_MAX:
            await self._forget_gone(place, read)

    async def _forget_gone(self, place: Place, read: _Subscription) -> None:
        oldest = await self._browsing.page(place, 1, 1)
        first = (oldest[0].sequence_number or 0) if oldest else read.read_to + 1
        read.numbers = {one: number for one, number in read.numbers.items() if number >= first}

    async def _present(self, place: Place, wanted: list[tuple[int, DeliveryRef]]) -> set[DeliveryRef]:
        """Walks the subscription from the first that is asked about, until a message proves the rest."""
        queued: set[DeliveryRef] = set()
        at, count = 0, 1
        while at < len(wanted):
            page = await self._browsing.page(place, wanted[at][0], count)
            if not page:
                break
            count = PAGE
            for message in page:
                number = message.sequence_number or 0
                while at < len(wanted) and wanted[at][0] < number:
                    at += 1  # It is gone.
                if at == len(wanted):
                    break
                ref = wanted[at][1]
                if wanted[at][0] == number:
                    at += 1
                    if self._waits(message, ref):
                        queued.add(ref)
                if self._is_new(message):
                    return queued | {each for _, each in wanted[at:]}
            else:
                # Nothing between here and the next that is asked about matters.
                continue
        return queued

    def _waits(self, message: ServiceBusReceivedMessage, ref: DeliveryRef) -> bool:
        """Delivered never, or last to this process, which no longer has it."""
        deliveries = message.delivery_count or 0
        return deliveries == 0 or deliveries == self._held.last_delivery(ref)

    def _is_new(self, message: ServiceBusReceivedMessage) -> bool:
        return not message.delivery_count
