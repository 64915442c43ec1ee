import asyncio
import json
from collections.abc import Callable

from tests.envs.toy import ToyApp
from virtual_phone import snapshot
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ToyApp.game.package


def toy_phone(number: int = 0) -> VirtualPhone:
    return VirtualPhone([ToyApp()], size=(72, 128), tempo="quick", number=number)


def state(phone: VirtualPhone) -> dict[str, int]:
    return dict(json.loads(phone.shown.states[PACKAGE]))


async def until(enough: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not enough():
            await asyncio.sleep(0.005)


def start(phone: VirtualPhone) -> None:
    phone.tasks.launch(PACKAGE, {"seed": "2", "clock": "running"})
    phone.input.touch(10, 64)


def test_ticks_advance_an_app_and_do_not_count_as_touches() -> None:
    async def play() -> None:
        phone = toy_phone()
        start(phone)
        clock_s = phone.tasks.clock_s
        await until(lambda: state(phone)["ticks"] > 3)
        assert state(phone)["touches"] == 1
        assert phone.tasks.clock_s == clock_s

    asyncio.run(play())


def test_invisible_apps_receive_no_ticks() -> None:
    async def play() -> None:
        phone = toy_phone()
        start(phone)
        await until(lambda: state(phone)["ticks"] > 1)
        for hide, show in (
            (lambda: phone.show_dialog("call"), phone.end_dialog),
            (phone.sleep, lambda: (phone.wake(), phone.unlock())),
            (phone.tasks.go_home, lambda: phone.tasks.bring_to_front(PACKAGE)),
        ):
            hide()
            ticks = state(phone)["ticks"]
            await asyncio.sleep(0.1)
            assert state(phone)["ticks"] == ticks
            show()
            await until(lambda seen=ticks: state(phone)["ticks"] > seen)

    asyncio.run(play())


def test_the_same_touches_and_ticks_give_the_same_images() -> None:
    async def play() -> None:
        phone, other = toy_phone(), toy_phone(5)
        start(phone)
        await until(lambda: state(phone)["ticks"] > 3)
        phone.input.touch(30, 64)
        phone.show_dialog("call")  # keeps both unchanged
        saved = json.loads(json.dumps(snapshot.take(phone)))
        names = [name for name, *_ in saved["apps"][PACKAGE]["inputs"]]
        assert names == ["touch", "tick", "touch"], "times that follow each other are one"
        snapshot.restore(other, saved)
        assert bytes(phone.shown.frame.raw) == bytes(other.shown.frame.raw)
        assert state(phone) == state(other)

    asyncio.run(play())


def test_an_app_that_raises_in_a_tick_disappears_and_the_phone_keeps_running() -> None:
    class Broken(ToyApp):
        def tick(self, ms: int) -> bool:
            raise RuntimeError("out of time")

    async def play() -> None:
        phone = VirtualPhone([Broken()], size=(72, 128), tempo="quick")
        start(phone)
        await until(lambda: phone.shown.front is None)
        assert PACKAGE in phone.tasks.crashed

    asyncio.run(play())
