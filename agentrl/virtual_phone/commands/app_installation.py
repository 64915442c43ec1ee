"""Installation of apps: `pm install`, `pm uninstall` and install sessions."""

from agentrl.virtual_phone.apps.apk import ApkManifest, read_manifest
from agentrl.virtual_phone.apps.installed_app import InstalledApp
from agentrl.virtual_phone.apps.system_apps import KEYBOARD_PACKAGE, PACKAGES, TextPage
from agentrl.virtual_phone.shell.command_context import CommandContext

_LARGEST_APK = 256 << 20
_WITH_VALUE = frozenset(["-i", "-p", "-S", "--user", "--abi", "--referrer", "--install-location"])
_SESSION = 1_000_000_001


async def install(call: CommandContext, arguments: list[str]) -> int:
    """`pm install [options] PATH`, or `-S SIZE` with the APK on standard input."""
    try:
        return _add(call, read_manifest(await _apk(call, arguments, 0)))
    except ValueError as error:
        return call.say(f"Failure [{error}]") + 1


def create(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-create`: start a session; only one exists at a time."""
    call.phone.staged = None
    return call.say(f"Success: created install session [{_SESSION}]")


async def write(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-write -S SIZE SESSION NAME [PATH|-]`: the first APK is the base APK."""
    try:
        apk = await _apk(call, arguments, 2)
        if call.phone.staged is None:
            call.phone.staged = read_manifest(apk)
    except ValueError as error:
        return call.say(f"Failure [{error}]") + 1
    return call.say(f"Success: streamed {len(apk)} bytes")


def commit(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-commit SESSION`."""
    manifest, call.phone.staged = call.phone.staged, None
    if manifest is None:
        return call.say("Failure [INSTALL_FAILED_SESSION_INVALID: nothing was written]") + 1
    return _add(call, manifest)


def abandon(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-abandon SESSION`."""
    call.phone.staged = None
    return call.say("Success")


def uninstall(call: CommandContext, arguments: list[str]) -> int:
    """`pm uninstall [-k] PACKAGE`."""
    _, words = _split(arguments)
    package = words[0] if words else ""
    if call.phone.tasks.uninstall(package):
        return call.say("Success")
    known = package in PACKAGES
    error = "DELETE_FAILED_DEVICE_POLICY_MANAGER" if known else "DELETE_FAILED_INTERNAL_ERROR"
    return call.say(f"Failure [{error}]") + 1


async def _apk(call: CommandContext, arguments: list[str], num_words: int) -> bytes:
    """The APK at the path that follows `num_words` words, or on standard input.

    Raises:
        ValueError: it cannot be read.
    """
    options, words = _split(arguments)
    if len(words) > num_words and words[-1] != "-":
        try:
            return call.phone.files.read(call.path(words[-1]))
        except OSError as error:
            raise ValueError(f"INSTALL_FAILED_INVALID_URI: {error.strerror}") from error
    size = options.get("-S", "")
    num_bytes = int(size) if size.isascii() and size.isdecimal() and len(size) < 12 else -1
    try:
        if not 0 <= num_bytes <= _LARGEST_APK:
            raise OSError(27, "bad size")
        call.phone.files.reserve(num_bytes)
    except OSError as error:
        raise ValueError(f"INSTALL_FAILED_INSUFFICIENT_STORAGE: {error.strerror}") from error
    try:
        return await _exactly(call, num_bytes)
    finally:
        call.phone.files.release(num_bytes)


async def _exactly(call: CommandContext, num_bytes: int) -> bytes:
    content = bytearray()
    while len(content) < num_bytes and (chunk := await call.io.read()):
        content += chunk
    if len(content) < num_bytes:
        raise ValueError(f"INSTALL_FAILED_INVALID_APK: got {len(content)} of {num_bytes} bytes")
    return bytes(content)


def _add(call: CommandContext, manifest: ApkManifest) -> int:
    """Install an app from its manifest; a built-in app keeps its code."""
    package, tasks = manifest.package, call.phone.tasks
    if package in PACKAGES or package == KEYBOARD_PACKAGE:
        return call.say(f"Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: {package}]") + 1
    known = tasks.apps.get(package)
    if known is None or known.manifest is not None:
        page = TextPage(package, manifest.activity)
        tasks.install(InstalledApp(app=page, manifest=manifest))
    return call.say("Success")


def _split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split arguments into options with their values and other words."""
    options: dict[str, str] = {}
    words: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument in _WITH_VALUE:
            options[argument] = next(left, "")
        elif argument.startswith("-") and argument != "-":
            options[argument] = ""
        else:
            words.append(argument)
    return options, words
