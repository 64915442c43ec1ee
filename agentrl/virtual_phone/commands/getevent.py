"""`getevent`: the phone's input devices, as the kernel describes them."""

import asyncio
import getopt
from collections.abc import Awaitable
from dataclasses import dataclass

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext

_LAST_FINGER, _MAX_ID = 9, 65_535
_USAGE = (
    "Usage: getevent [-t] [-n] [-s switchmask] [-S] [-v [mask]] [-d] [-p] [-i] [-l] [-q] "
    "[-c count] [-r] [device]"
)


@dataclass(slots=True, kw_only=True, frozen=True)
class _InputDevice:
    path: str
    name: str
    keys: tuple[tuple[int, str], ...]
    axes: tuple[tuple[int, str, int], ...] = ()
    """Code, name and maximum."""


def _devices(size: tuple[int, int]) -> list[_InputDevice]:
    """The buttons, and a touchscreen with one unit per pixel of the upright screen."""
    width, height = size
    buttons = ((114, "KEY_VOLUMEDOWN"), (115, "KEY_VOLUMEUP"), (116, "KEY_POWER"))
    axes = (
        (0x2F, "ABS_MT_SLOT", _LAST_FINGER),
        (0x35, "ABS_MT_POSITION_X", width - 1),
        (0x36, "ABS_MT_POSITION_Y", height - 1),
        (0x39, "ABS_MT_TRACKING_ID", _MAX_ID),
        (0x3A, "ABS_MT_PRESSURE", 255),
    )
    touch = ((0x14A, "BTN_TOUCH"),)
    return [
        _InputDevice(path="/dev/input/event0", name="gpio-keys", keys=buttons),
        _InputDevice(path="/dev/input/event1", name=TOUCHSCREEN, keys=touch, axes=axes),
    ]


TOUCHSCREEN = "virtual_touchscreen"


@command("getevent")
def getevent(ctx: CommandContext) -> int | Awaitable[int]:
    """`getevent [-p | -i] [-l] [DEVICE]`; without -p and -i it waits for events.

    As on a real phone, `input` makes no events of these devices.
    """
    try:
        given, words = getopt.gnu_getopt(ctx.arguments, "tns:Sv:dpilqc:rx")
    except getopt.GetoptError:
        return ctx.fail(_USAGE)
    options = {option[1] for option, _ in given}
    devices = [d for d in _devices(ctx.phone.geometry.physical) if d.path in words or not words]
    if not devices:
        return ctx.fail(f"could not open {words[0]}, No such file or directory")
    if "q" not in options and (not words or options & {"p", "i"}):
        for number, device in reversed(list(enumerate(devices, 1))):
            ctx.print(f"add device {number}: {device.path}")
            _describe(ctx, device, options)
    return 0 if options & {"p", "i", "S"} else _wait()


async def _wait() -> int:
    await asyncio.Event().wait()
    return 0


def _describe(ctx: CommandContext, device: _InputDevice, options: set[str]) -> None:
    if "i" in options:
        ctx.print("  bus:      0006\n  vendor    0000\n  product   0000\n  version   0000")
    ctx.print(f'  name:     "{device.name}"')
    if "i" in options:
        ctx.print('  location: ""\n  id:       ""\n  version:  1.0.1')
    if not options & {"p", "i"}:
        return
    named = "l" in options
    keys = "".join(f" {name:<20} " if named else f" {code:04x} " for code, name in device.keys)
    ctx.print(f"  events:\n    KEY (0001):{keys}")
    for number, (code, name, most) in enumerate(device.axes):
        label = f"{name:<20} " if named else f"{code:04x} "
        numbers = f"value 0, min 0, max {most}, fuzz 0, flat 0, resolution 0"
        ctx.print(f"{' ' * 15 if number else '    ABS (0003):'} {label} : {numbers}")
    ctx.print(f"  input props:\n    {'INPUT_PROP_DIRECT' if device.axes else '<none>'}")
