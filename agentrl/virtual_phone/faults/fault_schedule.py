"""A plan of faults as time goes by, on one phone."""

import asyncio
import random

from agentrl.virtual_phone.faults.distribution import Distribution
from agentrl.virtual_phone.faults.fault_plan import Event, FaultPlan
from agentrl.virtual_phone.phone import Phone


class FaultSchedule:
    """Sets and takes away the faults of one phone."""

    def __init__(self, phone: Phone, plan: FaultPlan, number: int) -> None:
        """Begin now.

        Args:
            phone: that suffers.
            plan: of all phones.
            number: of this one.
        """
        self._phone = phone
        self._plan = plan.of(number)
        self._random = random.Random(f"plan/{plan.seed}/{number}")
        self._loop = asyncio.get_running_loop()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.set_lasting()
        for index, event in enumerate(self._plan.schedule):
            self._wait(index, event, event.at_s)

    def set_lasting(self) -> None:
        """Set what is always so; a restart of the phone has taken it away."""
        for name, value in self._plan.always.items():
            self._phone.faults.set(name, value)

    def close(self) -> None:
        """No more faults."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait(self, index: int, event: Event, told: str) -> None:
        delay_s = self._draw(told)
        self._timers[index] = self._loop.call_later(delay_s, self._come, index, event)

    def _come(self, index: int, event: Event) -> None:
        if event.every_s is not None:
            self._wait(index, event, event.every_s)
        if self._random.random() >= event.probability:
            return
        faults = self._phone.faults
        faults.set(event.fault, event.value)
        if event.for_s is not None:
            key = -1 - index  # beside the timer of its next coming
            delay_s = self._draw(event.for_s)
            self._timers[key] = self._loop.call_later(delay_s, self._go, event)

    def _go(self, event: Event) -> None:
        """It is over, and what is always so is so again."""
        faults = self._phone.faults
        if faults.get(event.fault) == event.value:
            faults.set(event.fault, self._plan.always.get(event.fault, ""))

    def _draw(self, told: str) -> float:
        return Distribution.parse(told).draw(self._random)
