"""Runs a fault plan on one phone."""

import asyncio
import random

from agentrl.virtual_phone.faults.distribution import Distribution
from agentrl.virtual_phone.faults.fault_plan import FaultPlan, ScheduledFault
from agentrl.virtual_phone.phone import VirtualPhone


class FaultSchedule:
    """Sets and clears the faults of one phone as time passes."""

    def __init__(self, phone: VirtualPhone, plan: FaultPlan, number: int) -> None:
        """Start the schedule now.

        Args:
            phone: phone to set the faults on.
            plan: plan for all phones.
            number: number of this phone.
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
        """Set the permanent faults, also after a reboot, which clears them."""
        for name, value in self._plan.always.items():
            self._phone.faults.set(name, value)

    def close(self) -> None:
        """Cancel the schedule."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait(self, index: int, event: ScheduledFault, delay: str) -> None:
        delay_s = self._draw(delay)
        self._timers[index] = self._loop.call_later(delay_s, self._come, index, event)

    def _come(self, index: int, event: ScheduledFault) -> None:
        if event.every_s is not None:
            self._wait(index, event, event.every_s)
        if self._random.random() >= event.probability:
            return
        faults = self._phone.faults
        faults.set(event.fault, event.value)
        if event.for_s is not None:
            key = -1 - index  # next to the timer of its next occurrence
            delay_s = self._draw(event.for_s)
            self._timers[key] = self._loop.call_later(delay_s, self._go, event)

    def _go(self, event: ScheduledFault) -> None:
        """End an occurrence, and restore the permanent value of the fault."""
        faults = self._phone.faults
        if faults.get(event.fault) == event.value:
            faults.set(event.fault, self._plan.always.get(event.fault, ""))

    def _draw(self, text: str) -> float:
        return Distribution.parse(text).draw(self._random)
