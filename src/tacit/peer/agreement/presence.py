"""Who has been heard, and when: all that a member knows of others without their signatures."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.peer.agreement.statements import Sheet


class Presence:
    """What one member knows about the presence of the others.

    Times are those of a monotonic clock, in seconds. Everyone counts as heard at the beginning.

    Args:
        others: The other members.
        now: The time of the beginning.
        break_after: A silence of so many seconds interrupts the presence of a member.
        asleep_after: A longer pause between two ticks says that this process was stopped.
    """

    def __init__(
        self, others: Iterable[str], now: float, *, break_after: float, asleep_after: float
    ) -> None:
        self._break_after, self._asleep_after = break_after, asleep_after
        self._heard = dict.fromkeys(others, now)
        self._since: dict[str, float] = {}
        self._epochs: dict[str, int] = {}
        self._finished: set[str] = set()
        self.last_tick = now

    def __contains__(self, name: str) -> bool:
        return name in self._heard

    @property
    def names(self) -> tuple[str, ...]:
        """The other members."""
        return tuple(self._heard)

    def tick(self, now: float) -> None:
        """Time has passed. While this process was stopped, it could not hear anyone."""
        gap = now - self.last_tick
        if gap > self._asleep_after:
            self._heard = {name: time + gap for name, time in self._heard.items()}
            self._since.clear()
        self.last_tick = now

    def hear(self, name: str, sheet: Sheet, now: float) -> None:
        """A sheet of another member has arrived."""
        if now - self._heard[name] > self._break_after:
            self._since.pop(name, None)
        self._heard[name] = max(now, self._heard[name])
        self._since.setdefault(name, now)
        self._epochs[name] = sheet.epoch
        if sheet.finished:
            self._finished.add(name)
        else:
            self._finished.discard(name)

    def silence(self, name: str, now: float) -> float:
        """Seconds since a member was heard."""
        return now - self._heard[name]

    def is_steady(self, name: str, now: float) -> bool:
        """Whether a member has been heard for a while, without a break."""
        since = self._since.get(name, now)
        is_here = self.silence(name, now) <= self._break_after
        return is_here and now - since >= self._break_after

    def epoch(self, name: str) -> int:
        """The epoch that a member was in when it was heard last, as it says."""
        return self._epochs.get(name, 0)

    def has_finished(self, name: str) -> bool:
        """Whether a member says that it needs nothing more of anyone."""
        return name in self._finished
