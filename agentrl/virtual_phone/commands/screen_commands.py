"""Commands for the screen: screencap, wm, uiautomator."""

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.command_context import CommandContext
from agentrl.virtual_phone.system import screen_capture, view_hierarchy

_DUMP = "/sdcard/window_dump.xml"


@command("screencap")
def screencap(call: CommandContext) -> int:
    """`screencap [-p] [-d DISPLAY] [FILE]`."""
    options, files = split_options(call, "d")
    is_png = "p" in options or any(file.endswith(".png") for file in files)
    picture = screen_capture.png(call.phone) if is_png else screen_capture.raw(call.phone)
    if picture is None:
        return call.fail("Capturing failed.")
    if files:
        call.phone.files.write(call.path(files[0]), bytes(picture))
    else:
        call.out(picture)
    return 0


@command("wm")
def wm(call: CommandContext) -> int:
    """`wm size [WxH|reset]`, `wm density [N|reset]`, `wm dismiss-keyguard`, `wm user-rotation`."""
    verb, *arguments = call.arguments or [""]
    phone = call.phone
    try:
        if verb == "size":
            return _size(call, arguments)
        if verb == "density":
            return _density(call, arguments)
        if verb in ("user-rotation", "set-user-rotation"):
            return _rotation(call, arguments)
    except ValueError as error:
        return call.fail(f"Error: {error}", 255)
    if verb == "dismiss-keyguard":
        phone.unlock()
        return 0
    return call.fail(f"Unknown command: {' '.join(call.arguments)}", 255)


def _size(call: CommandContext, arguments: list[str]) -> int:
    geometry = call.phone.geometry
    if not arguments:
        call.say(f"Physical size: {_by(geometry.physical)}")
        return call.say(f"Override size: {_by(geometry.override)}") if geometry.override else 0
    if arguments[0] == "reset":
        geometry.set_size(None)
    else:
        width, _, height = arguments[0].partition("x")
        geometry.set_size((int(width[:9]), int(height[:9])))
    call.phone.display.at_once()
    return 0


def _density(call: CommandContext, arguments: list[str]) -> int:
    geometry = call.phone.geometry
    if not arguments:
        call.say(f"Physical density: {geometry.physical_density}")
        override = geometry.density_override
        return call.say(f"Override density: {override}") if override else 0
    geometry.density_override = None if arguments[0] == "reset" else int(arguments[0][:9])
    return 0


def _rotation(call: CommandContext, arguments: list[str]) -> int:
    """`wm user-rotation [free | lock [0-3]]`."""
    phone = call.phone
    verb, *value = arguments or [""]
    if verb == "free":
        phone.put_setting("system", "accelerometer_rotation", "1")
    elif verb == "lock":
        rotation = value[0] if value else str(phone.geometry.rotation)
        if rotation not in ("0", "1", "2", "3"):
            raise ValueError(f"invalid rotation {rotation}")
        phone.put_setting("system", "user_rotation", rotation)
        phone.put_setting("system", "accelerometer_rotation", "0")
    elif not verb:
        is_free = phone.settings.get("system", "accelerometer_rotation") != "0"
        return call.say("free" if is_free else f"lock {phone.geometry.rotation}")
    else:
        raise ValueError(f"expected free or lock, not {verb}")
    return 0


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@command("uiautomator")
async def uiautomator(call: CommandContext) -> int:
    """`uiautomator dump [--compressed] [FILE]`, once the screen is idle."""
    if call.arguments[:1] != ["dump"]:
        return call.fail("Unsupported command: uiautomator " + " ".join(call.arguments), 1)
    files = [word for word in call.arguments[1:] if not word.startswith("-")]
    target = files[0] if files else _DUMP
    if not call.phone.power.awake:
        return call.fail("ERROR: could not get idle state.")
    await call.phone.display.at_rest()
    xml = view_hierarchy.dump(call.phone).encode("utf-8", "replace")
    if target == "/dev/tty":
        call.out(xml)
    else:
        call.phone.files.write(call.path(target), xml)
    return call.say(f"UI hierchary dumped to: {target}")  # codespell:ignore
