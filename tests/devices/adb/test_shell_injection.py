"""A catalogue of hostile strings through every call that takes a text, by both drivers."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.devices import Key, Tap, Type
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.devices.guard.foreground import parse_front_package
from agentrl.errors import DeviceError
from agentrl.extension_points import DRIVER

pytestmark = pytest.mark.adb
PACKAGE = "org.agentrl.probe"
TYPE = ("am", "broadcast", "-a", "ADB_INPUT_B64", "--es")
START = ("am", "start", "-S", "-W", "-n", f"{PACKAGE}/.Main")


def catalogue() -> Any:
    spec = importlib.util.spec_from_file_location(
        "hostile_arguments", Path(__file__).with_name("hostile_arguments.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STRINGS = catalogue()
HOSTILE: list[str] = STRINGS.HOSTILE
NEVER: list[str] = STRINGS.NEVER
TOO_LONG: list[str] = STRINGS.TOO_LONG
PLAIN = [text for text in HOSTILE if text and text.isascii() and text.isprintable()]


class Target:
    """A phone in this process, and a device that drives it."""

    def __init__(self, watched: Any, device: AdbPhone) -> None:
        self.device = device
        self._watched = watched

    def ran(self) -> list[tuple[str, ...]]:
        """What its shell ran since the last time."""
        commands: list[tuple[str, ...]] = self._watched.ran()
        return commands

    def refuses(self, call: Callable[[], object], text: str) -> None:
        """The call is refused before anything is sent."""
        with pytest.raises((DeviceError, ValueError)):
            call()
        assert self.ran() == [], repr(text[:80])


@pytest.fixture(params=DRIVER.names())
def target(
    watched_phone: Any, adb_server: AdbServer, request: pytest.FixtureRequest
) -> Iterator[Target]:
    server = AdbServer(port=adb_server.port, driver=request.param)
    device = AdbPhone(server, watched_phone.serial)
    device.launch(PACKAGE, ".Main", {})
    device.size()
    watched_phone.ran()
    yield Target(watched_phone, device)
    device.close()


def test_the_hostile_arguments_are_the_same_in_both_packages() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 150
    assert len(PLAIN) >= 100


def test_an_argument_is_one_argument_and_never_a_command(target: Target) -> None:
    for text in HOSTILE:
        assert target.device.shell("printf", "x %s\n", text) == f"x {text}\n", repr(text[:80])
        assert target.ran() == [("printf", "x %s\n", text)]
        results = target.device.batch(("printf", "x %s\n", text), ("false",), ("echo", "end"))
        pairs = [(result.output, result.code) for result in results]
        assert pairs == [(f"x {text}\n", 0), ("", 1), ("end\n", 0)], repr(text[:80])
        assert target.ran() == [("printf", "x %s\n", text), ("false",), ("echo", "end")]


def test_an_argument_is_one_argument_in_a_persistent_shell_too(target: Target) -> None:
    for text in HOSTILE:
        (result,) = target.device.run_internal([("printf", "x %s\n", text)])
        assert result.output == f"x {text}\n", repr(text[:80])
        assert target.ran() == [("printf", "x %s\n", text)]


def test_arguments_that_no_shell_accepts_are_never_sent(target: Target) -> None:
    device = target.device
    for text in NEVER:
        target.refuses(lambda text=text: device.shell("echo", text), text)  # type: ignore[misc]
        target.refuses(lambda text=text: device.batch(("echo",), ("echo", text)), text)  # type: ignore[misc]
        target.refuses(lambda text=text: device.perform(Type(text)), text)  # type: ignore[misc]
        target.refuses(lambda text=text: device.send_action(Type(text), PACKAGE), text)  # type: ignore[misc]
        target.refuses(lambda text=text: device.launch(PACKAGE, ".Main", {"k": text}), text)  # type: ignore[misc]
    for text in TOO_LONG:
        target.refuses(lambda text=text: device.shell("echo", text), text)  # type: ignore[misc]


def test_plain_text_is_typed_unchanged(target: Target) -> None:
    device, typed = target.device, ""
    for number, text in enumerate(PLAIN):
        if number % 2:
            device.perform(Type(text))
        else:
            device.send_action(Type(text), PACKAGE)
        ran = target.ran()
        assert {command[0] for command in ran} <= {"settings", "input", "cat"}
        assert all(command[1] == "text" for command in ran if command[0] == "input")
        typed += text
        assert device.app_state(PACKAGE)["text"] == typed, repr(text[:80])
        target.ran()


def test_any_text_is_typed_byte_for_byte(target: Target) -> None:
    device, typed = target.device, ""
    for number, text in enumerate(HOSTILE):
        if number % 2:
            device.perform(Type(text))
        else:
            device.send_action(Type(text), PACKAGE)
        ran = target.ran()
        assert {command[0] for command in ran} <= {
            "settings",
            "ime",
            "am",
            "input",
            "cat",
            "dumpsys",
        }
        assert all(command[:5] == TYPE for command in ran if command[0] == "am")
        typed += text
        assert device.app_state(PACKAGE)["text"] == typed, repr(text[:80])
        target.ran()


def test_the_previous_input_method_is_restored(target: Target) -> None:
    device, chosen = target.device, ("settings", "get", "secure", "default_input_method")
    old = device.shell(*chosen)
    device.perform(Type("h\u00e9"))
    assert device.shell(*chosen) != old
    device.close()
    assert device.shell(*chosen) == old


def test_extras_arrive_unchanged(target: Target) -> None:
    for text in HOSTILE:
        extras = {f"key {text}": "value", "key": text}
        target.device.launch(PACKAGE, ".Main", extras)
        words = [word for pair in extras.items() for word in ("--es", *pair)]
        assert target.ran() == [(*START, *words)], repr(text[:80])
        assert target.device.app_state(PACKAGE)["extras"] == extras, repr(text[:80])
        target.ran()


def test_an_invalid_name_never_reaches_the_phone(target: Target) -> None:
    device = target.device
    calls: list[Callable[[str], object]] = [
        lambda text: device.launch(text, ".Main", {}),
        lambda text: device.launch(PACKAGE, text, {}),
        device.stop,
        lambda text: device.perform(Key(text)),
        device.app_state,
        device.look,
        lambda text: device.send_action(Tap(0.5, 0.5), text),
        lambda text: device.reverse(text, "tcp:1"),
        lambda text: device.reverse("tcp:1", text),
        device.reverse_remove,
    ]
    for text in (*HOSTILE, *NEVER, *TOO_LONG):
        if text.isalnum() and text.isascii():  # an app or a key may be called that
            continue
        for call in calls:
            target.refuses(lambda call=call, text=text: call(text), text)  # type: ignore[misc]


def test_the_foreground_is_a_package_or_none_for_any_title(target: Target) -> None:
    for text in HOSTILE:
        front = parse_front_package(
            f"  mCurrentFocus=Window{{a1b2c3 u0 {text}}}\n  mFocusedApp={text}"
        )
        assert front is None or not any(letter.isspace() for letter in front), repr(text[:80])
        target.device.batch(("setprop", "debug.agentrl.fault.focus", text))  # some it does not take
        target.ran()
        front = target.device.focus()
        assert target.ran() == []
        assert front is None or not any(letter.isspace() for letter in front), repr(text[:80])
    target.device.shell("setprop", "debug.agentrl.fault.focus", "")
    assert target.device.focus() == PACKAGE
