"""The package manager command: pm, including the installation of apps."""

from collections.abc import Awaitable, Callable

from agentrl.virtual_phone.apps.apk import ApkManifest, read_manifest
from agentrl.virtual_phone.apps.installed_app import InstalledApp, component_name
from agentrl.virtual_phone.apps.system_apps import ACTIVITIES, KEYBOARD_PACKAGE, PACKAGES, TextPage
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext

_FEATURES = (
    "reqGlEsVersion=0x30002",
    "android.hardware.touchscreen",
    "android.hardware.touchscreen.multitouch",
    "android.hardware.wifi",
    "android.software.input_methods",
)


Verb = Callable[[CommandContext, list[str]], "int | Awaitable[int]"]


@command("pm")
def pm(call: CommandContext) -> int | Awaitable[int]:
    """`pm list|path|clear|grant|install|uninstall|...`."""
    verb, *arguments = call.arguments or [""]
    run = _VERBS.get(verb)
    return call.fail(f"Unknown command: {verb}", 255) if run is None else run(call, arguments)


def _packages(call: CommandContext) -> dict[str, str]:
    """Every package with the path of its APK."""
    apps = dict.fromkeys((KEYBOARD_PACKAGE, *call.phone.tasks.apps), "/data/app/{}/base.apk")
    system = dict.fromkeys(PACKAGES, "/system/app/{0}/{0}.apk")
    return {name: path.format(name) for name, path in sorted({**system, **apps}.items())}


def _list(call: CommandContext, arguments: list[str]) -> int:
    """`pm list packages [-f] [-3] [-s] [-d] [-e] [-i] [FILTER]`, `features`, `users`."""
    what, *options = arguments or [""]
    if what == "features":
        for feature in _FEATURES:
            call.say(f"feature:{feature}")
    elif what == "users":
        call.say("Users:\n\tUserInfo{0:Owner:c13} running")
    elif what in ("permissions", "permission-groups", "instrumentation", "libraries"):
        return 0
    elif what == "packages":
        filters = [word for word in options if not word.startswith("-") and word != "0"]
        for package, path in _packages(call).items():
            if _is_wanted(call, package, options) and all(f in package for f in filters):
                line = f"package:{path}={package}" if "-f" in options else f"package:{package}"
                call.say(line + ("  installer=null" if "-i" in options else ""))
    else:
        return call.fail(f"Error: unknown list type '{what}'", 255)
    return 0


def _is_wanted(call: CommandContext, package: str, options: list[str]) -> bool:
    installed = call.phone.tasks.apps.get(package)
    is_enabled = installed is None or installed.is_enabled
    if ("-s" in options and package not in PACKAGES) or ("-3" in options and package in PACKAGES):
        return False
    return not ("-d" in options and is_enabled) and not ("-e" in options and not is_enabled)


def _path(call: CommandContext, arguments: list[str]) -> int:
    path = _packages(call).get(arguments[-1] if arguments else "")
    return 1 if path is None else call.say(f"package:{path}")


def _clear(call: CommandContext, arguments: list[str]) -> int:
    package = arguments[-1] if arguments else ""
    if package not in _packages(call):
        return call.say("Failed") + 1
    if package in call.phone.tasks.apps:
        call.phone.tasks.stop(package)
    return call.say("Success")


def _permission(call: CommandContext, arguments: list[str]) -> int:
    """`pm grant|revoke PACKAGE PERMISSION`: every app has all permissions."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] not in _packages(call):
        return call.fail(f"Error: Unknown package: {' '.join(words[:1])}", 255)
    return 0


def _enable(enable: bool) -> Callable[[CommandContext, list[str]], int]:
    def run(call: CommandContext, arguments: list[str]) -> int:
        package = (arguments[-1] if arguments else "").partition("/")[0]
        installed = call.phone.tasks.apps.get(package)
        if installed is not None:
            installed.is_enabled = enable
            if not enable:
                call.phone.tasks.stop(package)
        elif package not in _packages(call):
            return call.fail(
                f"Error: java.lang.IllegalArgumentException: Unknown package: {package}"
            )
        state = "enabled" if enable else "disabled-user"
        return call.say(f"Package {package} new state: {state}")

    return run


def _resolve(call: CommandContext, arguments: list[str]) -> int:
    """`pm resolve-activity [--brief] PACKAGE`: the activity that starts the app."""
    package = arguments[-1] if arguments else ""
    installed, known = call.phone.tasks.apps.get(package), ACTIVITIES.get(package)
    component = installed.component if installed else component_name(package, known or "")
    if installed is None and known is None:
        return call.say("No activity found")
    call.say("priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true")
    return call.say(component)


_LARGEST_APK = 256 << 20
_WITH_VALUE = frozenset(["-i", "-p", "-S", "--user", "--abi", "--referrer", "--install-location"])
_SESSION = 1_000_000_001


async def _install(call: CommandContext, arguments: list[str]) -> int:
    """`pm install [options] PATH`, or `-S SIZE` with the APK on standard input."""
    try:
        return _add(call, read_manifest(await _apk(call, arguments, 0)))
    except ValueError as error:
        return call.say(f"Failure [{error}]") + 1


def _create_session(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-create`: start a session; only one exists at a time."""
    call.phone.staged = None
    return call.say(f"Success: created install session [{_SESSION}]")


async def _write_session(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-write -S SIZE SESSION NAME [PATH|-]`: the first APK is the base APK."""
    try:
        apk = await _apk(call, arguments, 2)
        if call.phone.staged is None:
            call.phone.staged = read_manifest(apk)
    except ValueError as error:
        return call.say(f"Failure [{error}]") + 1
    return call.say(f"Success: streamed {len(apk)} bytes")


def _commit_session(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-commit SESSION`."""
    manifest, call.phone.staged = call.phone.staged, None
    if manifest is None:
        return call.say("Failure [INSTALL_FAILED_SESSION_INVALID: nothing was written]") + 1
    return _add(call, manifest)


def _abandon_session(call: CommandContext, arguments: list[str]) -> int:
    """`pm install-abandon SESSION`."""
    call.phone.staged = None
    return call.say("Success")


def _uninstall(call: CommandContext, arguments: list[str]) -> int:
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


_VERBS: dict[str, Verb] = {
    "list": _list,
    "path": _path,
    "clear": _clear,
    "grant": _permission,
    "revoke": _permission,
    "enable": _enable(True),
    "disable-user": _enable(False),
    "disable": _enable(False),
    "resolve-activity": _resolve,
    "install": _install,
    "uninstall": _uninstall,
    "install-create": _create_session,
    "install-write": _write_session,
    "install-commit": _commit_session,
    "install-abandon": _abandon_session,
}
