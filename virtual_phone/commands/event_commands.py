"""`getevent` and `sendevent`: the phone's input devices, as the kernel describes them."""

import asyncio
import re
from collections.abc import Awaitable
from functools import partial

from virtual_phone.commands.command_options import split_options
from virtual_phone.commands.command_table import command
from virtual_phone.commands.input_commands import is_taken
from virtual_phone.input_handler import key_code
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.input_devices import (
    BUTTONS,
    TOUCHSCREEN,
    InputDevice,
    input_devices,
)


@command("getevent")
def getevent(ctx: CommandContext) -> int | Awaitable[int]:
    """`getevent [-p | -i] [-l] [DEVICE]`; without -p or -i it waits for events.

    As on a real phone, `input` generates no events on these devices. Events from `sendevent` are
    not shown.
    """
    given, words = split_options(ctx, "tnpilqr")
    options = {*given}
    devices = [
        d for d in input_devices(ctx.phone.geometry.physical) if d.path in words or not words
    ]
    if not devices:
        return ctx.fail(f"could not open {words[0]}, No such file or directory")
    if "q" not in options and (not words or options & {"p", "i"}):
        for number, device in reversed(list(enumerate(devices, 1))):
            ctx.print(f"add device {number}: {device.path}")
            _describe(ctx, device, options)
    return 0 if options & {"p", "i"} else asyncio.get_running_loop().create_future()


@command("sendevent")
def sendevent(ctx: CommandContext) -> int:
    """`sendevent DEVICE TYPE CODE VALUE`, as in `sendevent /dev/input/event1 3 53 100`."""
    if len(ctx.arguments) != 4:
        bound = "Need" if len(ctx.arguments) < 4 else "Max"
        return ctx.fail(f'sendevent: {bound} 4 arguments (see "sendevent --help")')
    path, phone = ctx.arguments[0], ctx.phone
    phone.files.stat(ctx.path(path))
    # Parse like C's `atoi`: other words are 0, and values wrap at 32 bits, so 4294967295 is -1.
    read = (re.match(r"\s*([+-]?\d{1,18})", word) for word in ctx.arguments[1:])
    numbers = (int(found[1]) if found else 0 for found in read)
    kind, code, value = ((number + (1 << 31)) % (1 << 32) - (1 << 31) for number in numbers)
    at = phone.files.resolve(ctx.path(path))
    if at == TOUCHSCREEN:
        acts = [partial(phone.input.move, *m) for m in phone.drivers.touch(kind, code, value)]
    elif at == BUTTONS:
        keys = phone.drivers.press(kind, code, value)
        acts = [partial(phone.input.key, key_code(key)) for key in keys]
    else:
        return ctx.fail(
            f"sendevent: EVIOCGVERSION failed for {path}: Inappropriate ioctl for device"
        )
    if acts and not is_taken(phone):
        for act in acts:
            act()
    return 0


def _describe(ctx: CommandContext, device: InputDevice, options: set[str]) -> None:
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
