"""Commands for the screen: screencap, screenrecord, wm."""

import asyncio

from virtual_phone import screen_capture
from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.phone_display import DISPLAY_ID
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.shell.command_streams import Write
from virtual_phone.system.screen_frame import KNOWN_SCREEN, SENT, black
from virtual_phone.system.screen_recorder import EncoderMissing, ScreenRecorder

_SENT_SCREEN = "AGENTRL_SENT_SCREEN"
"""Shell variable that holds the token of the last frame sent."""
_SECOND_DISPLAY = (720, 720)
"""Size of the dark display captured by default under the `second_display` fault."""
_USAGE = """\
usage: screencap [-hp] [-d display-id] [FILENAME]
   -h: this message
   -p: save the file as a png.
   -d: specify the display ID to capture
If FILENAME ends with .png it will be saved as a png.
If FILENAME is not given, the results will be printed to stdout."""
_MAX_S = 180.0
_BIT_RATE = 20_000_000
_SIDES = range(16, 4097)
_RECORDING = {
    "size=": "size", "bit-rate=": "bit-rate", "time-limit=": "time-limit",
    "output-format=": "output-format", "display-id=": "", "verbose": "", "rotate": "",
    "bugreport": "", "show-frame-time": "",
}  # fmt: skip


@command("screencap")
def screencap(ctx: CommandContext) -> int:
    """`screencap [-p] [-d DISPLAY] [FILE]`."""
    options, files = split_options(ctx, "hpd:")
    if "h" in options:
        return ctx.fail(_USAGE)
    is_png = "p" in options or any(file.endswith(".png") for file in files)
    if options.get("d", str(DISPLAY_ID)) != str(DISPLAY_ID):
        ctx.fail("Failed to take screenshot. Status: -2")
        return ctx.fail("Capturing failed.")
    known = "" if files or is_png else ctx.environment.get(KNOWN_SCREEN, "")
    if known == SENT:
        # These faults apply when a client opens a service, so fail to make the client open one.
        if ctx.phone.faults.slow_services:
            return 1
        known = ctx.environment.get(_SENT_SCREEN, "none")
    image = screen_capture.png(ctx.phone) if is_png else screen_capture.raw(ctx.phone, known)
    # On a foldable phone, Android captures the other display unless -d is given.
    if ctx.phone.faults.get("second_display") and "d" not in options:
        other = black(*_SECOND_DISPLAY)
        known, image = "", other.png if is_png else other.raw
    if image is None:
        return ctx.fail("Capturing failed.")
    if known and ctx.phone.sent_frame is not None:
        ctx.environment[_SENT_SCREEN] = ctx.phone.sent_frame.token.hex()
    if files:
        ctx.phone.files.write(ctx.path(files[0]), bytes(image))
    else:
        ctx.out(image)
    return 0


@command("wm")
def wm(ctx: CommandContext) -> int:
    """`wm size [WxH|reset]`, `wm density [N|reset]`, `wm dismiss-keyguard`, `wm user-rotation`."""
    verb, *arguments = ctx.arguments or [""]
    phone = ctx.phone
    try:
        if verb == "size":
            return _size(ctx, arguments)
        if verb == "density":
            return _density(ctx, arguments)
        if verb in ("user-rotation", "set-user-rotation"):
            return _rotation(ctx, arguments)
    except ValueError as error:
        return ctx.fail(f"Error: {error}", 255)
    if verb == "dismiss-keyguard":
        phone.unlock()
        return 0
    return ctx.fail(f"Unknown command: {' '.join(ctx.arguments)}", 255)


def _size(ctx: CommandContext, arguments: list[str]) -> int:
    geometry = ctx.phone.geometry
    if not arguments:
        for name, size in (("Physical", geometry.physical), ("Override", geometry.override)):
            if size is not None:
                ctx.print(f"{name} size: {size[0]}x{size[1]}")
        return 0
    if arguments[0] == "reset":
        geometry.set_size(None)
    else:
        width, _, height = arguments[0].partition("x")
        if not (width and height):
            return ctx.fail(f"Error: bad size {arguments[0]}", 255)
        for side in (width, height):
            if number_of(side) is None:
                return ctx.fail(_bad_number(side), 255)
        geometry.set_size((int(width), int(height)))
    ctx.phone.display.show_now()
    return 0


def _density(ctx: CommandContext, arguments: list[str]) -> int:
    geometry = ctx.phone.geometry
    if not arguments:
        ctx.print(f"Physical density: {geometry.physical_density}")
        override = geometry.density_override
        return ctx.print(f"Override density: {override}") if override else 0
    density = number_of(arguments[0])
    if arguments[0] != "reset" and density is None:
        return ctx.fail(_bad_number(arguments[0]), 255)
    geometry.density_override = density
    return 0


def _bad_number(text: str) -> str:
    return f'Error: bad number java.lang.NumberFormatException: For input string: "{text}"'


def _rotation(ctx: CommandContext, arguments: list[str]) -> int:
    """`wm user-rotation [free | lock [0-3]]`: show or set the rotation lock."""
    phone = ctx.phone
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
        return ctx.print("free" if is_free else f"lock {phone.geometry.rotation}")
    else:
        raise ValueError(f"expected free or lock, not {verb}")
    return 0


@command("screenrecord")
async def screenrecord(ctx: CommandContext) -> int:
    """`screenrecord [--output-format=h264] [--size WxH] [--bit-rate N] [--time-limit N] FILE|-`."""
    try:
        options, words = split_options(ctx, "", _RECORDING)
        if len(words) != 1:
            raise UsageError("Must specify output file (see --help)")
        target = words[0]
        size = _video_size(options.get("size"), ctx.phone.geometry.size)
        limit_s = min(float(options.get("time-limit", _MAX_S)), _MAX_S)
        bit_rate = _bit_rate(options.get("bit-rate"))
        is_stream = options.get("output-format") in ("h264", "raw-frames") or target == "-"
    except ValueError as error:
        return ctx.fail(f"screenrecord: {error}", 2)
    try:
        recorder = ScreenRecorder(size, bit_rate, container=not is_stream)
    except EncoderMissing as error:
        return ctx.fail(f"screenrecord: {error}")
    written: list[bytes | memoryview] = []
    write: Write = ctx.out if target == "-" else written.append
    try:
        async with asyncio.timeout(limit_s):
            await _record(ctx, recorder, write)
    except TimeoutError:
        pass
    finally:
        written.append(recorder.close())
        if target != "-":
            ctx.phone.files.write(ctx.path(target), b"".join(written))
    return 0


async def _record(ctx: CommandContext, recorder: ScreenRecorder, write: Write) -> None:
    """Encode a frame for every change; a slow client misses intermediate frames."""
    phone, loop = ctx.phone, asyncio.get_running_loop()
    start_s, last = loop.time(), None
    while True:
        shown, frame = phone.shown, screen_capture.frame(phone)
        if frame is not last:
            write(await recorder.encode(frame, loop.time() - start_s))
            last = frame
        await ctx.io.drain()
        await phone.display.wait_for_change(shown)


def _video_size(option: str | None, size: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height of the video, rounded down to even numbers."""
    if option is not None:
        width, _, height = option.partition("x")
        size = int(width[:9]), int(height[:9])
    if not all(side in _SIDES for side in size):
        raise ValueError(f"Invalid size {option}, must be width x height")
    return size[0] // 2 * 2, size[1] // 2 * 2


def _bit_rate(option: str | None) -> int:
    """Parse a bit rate in bits per second; `4M` is four million."""
    if option is None:
        return _BIT_RATE
    rate = int(option[:-1][:9]) * 1_000_000 if option[-1:] in ("M", "m") else int(option[:9])
    if not 100_000 <= rate <= 200_000_000:
        raise ValueError(f"Bit rate {option[:20]} outside acceptable range [100000,200000000]")
    return rate
