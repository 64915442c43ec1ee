"""`screenrecord`: video of the screen."""

import asyncio

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.command_context import CommandContext
from agentrl.virtual_phone.shell.redirects import Write
from agentrl.virtual_phone.system import screen_capture
from agentrl.virtual_phone.system.screen_recorder import EncoderMissing, ScreenRecorder

_LONGEST_S = 180.0
_BIT_RATE = 20_000_000
_SIDES = range(16, 4097)


@command("screenrecord")
async def screenrecord(call: CommandContext) -> int:
    """`screenrecord [--output-format=h264] [--size WxH] [--bit-rate N] [--time-limit N] FILE|-`."""
    try:
        options, target = _read(call.arguments)
        size = _size(options.get("size"), call.phone.geometry.size)
        limit_s = min(float(options.get("time-limit", _LONGEST_S)), _LONGEST_S)
        bit_rate = _rate(options.get("bit-rate"))
        is_stream = options.get("output-format") in ("h264", "raw-frames") or target == "-"
    except ValueError as error:
        return call.fail(f"screenrecord: {error}", 2)
    try:
        recorder = ScreenRecorder(size, bit_rate, container=not is_stream)
    except EncoderMissing as error:
        return call.fail(f"screenrecord: {error}")
    written: list[bytes | memoryview] = []
    write: Write = call.out if target == "-" else written.append
    try:
        async with asyncio.timeout(limit_s):
            await _record(call, recorder, write)
    except TimeoutError:
        pass
    finally:
        written.append(recorder.close())
        if target != "-":
            call.phone.files.write(call.path(target), b"".join(written))
    return 0


async def _record(call: CommandContext, recorder: ScreenRecorder, write: Write) -> None:
    """Encode a frame for every change; a slow client misses the ones in between."""
    phone, loop = call.phone, asyncio.get_running_loop()
    start_s, last = loop.time(), None
    while True:
        shown, frame = phone.shown, screen_capture.frame(phone)
        if frame is not last:
            write(await recorder.encode(frame, loop.time() - start_s))
            last = frame
        await call.io.drained()
        await phone.display.change(shown)


def _read(arguments: list[str]) -> tuple[dict[str, str], str]:
    """Parse the arguments into options and the output file.

    Raises:
        ValueError: an option is unknown, or the output file is missing.
    """
    options: dict[str, str] = {}
    words: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--"):
            words.append(argument)
        elif name in ("verbose", "rotate", "bugreport", "show-frame-time"):
            options[name] = ""
        elif name in ("size", "bit-rate", "time-limit", "output-format", "display-id"):
            options[name] = value if equals else next(left, "")
        else:
            raise ValueError(f"unrecognized option {argument[:100]}")
    if len(words) != 1:
        raise ValueError("Must specify output file (see --help)")
    return options, words[0]


def _size(option: str | None, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the video, rounded down to even numbers."""
    if option is not None:
        width, _, height = option.partition("x")
        size = int(width[:9]), int(height[:9])
    if not all(side in _SIDES for side in size):
        raise ValueError(f"Invalid size {option}, must be width x height")
    return size[0] // 2 * 2, size[1] // 2 * 2


def _rate(option: str | None) -> int:
    """The bit rate in bits per second; `4M` is four million."""
    if option is None:
        return _BIT_RATE
    rate = int(option[:-1][:9]) * 1_000_000 if option[-1:] in ("M", "m") else int(option[:9])
    if not 100_000 <= rate <= 200_000_000:
        raise ValueError(f"Bit rate {option[:20]} outside acceptable range [100000,200000000]")
    return rate
