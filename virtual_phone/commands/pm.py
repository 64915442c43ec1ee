"""The package manager command: pm, which also installs apps."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

from virtual_phone.apps.apk import InstallFailure, read_manifest
from virtual_phone.apps.installed_app import InstalledApp, component_name
from virtual_phone.apps.system_packages import (
    ACTIVITIES,
    DIALER,
    KEYBOARD_PACKAGE,
    LAUNCHER,
    LAUNCHER_ACTIVITY,
    PACKAGES,
    SETTINGS,
    SYSTEM_VERSION,
    apk_path,
)
from virtual_phone.apps.text_page_app import TextPage
from virtual_phone.commands.am import Intent, find_viewer, read_intent
from virtual_phone.commands.command_options import number_of
from virtual_phone.commands.command_table import command
from virtual_phone.shell.command_context import CommandContext

_FEATURES = (
    "reqGlEsVersion=0x30002",
    "android.hardware.touchscreen",
    "android.hardware.touchscreen.multitouch",
    "android.hardware.wifi",
    "android.software.input_methods",
)


Verb = Callable[[CommandContext, list[str]], "int | Awaitable[int]"]
_MAX_APK_BYTES = 256 << 20
_SESSION = "/data/app/vmdl{}.tmp"
"""Folder that holds the APKs of an installation session in progress."""
_WITH_VALUE = frozenset(["-i", "-p", "-S", "--user", "--abi", "--referrer", "--install-location"])


@command("pm")
def pm(ctx: CommandContext) -> int | Awaitable[int]:
    """`pm list|path|clear|grant|install|uninstall|...`."""
    verb, *arguments = ctx.arguments or [""]
    run = _VERBS.get(verb)
    if run is None:
        return ctx.fail(f"Unknown command: {verb}", 255)

    def fail(error: InstallFailure) -> int:
        return ctx.print(f"Failure [{error}]") + 1

    async def finish(installing: Awaitable[int]) -> int:
        try:
            return await installing
        except InstallFailure as error:
            return fail(error)

    try:
        done = run(ctx, arguments)
    except InstallFailure as error:
        return fail(error)
    return done if isinstance(done, int) else finish(done)


def all_packages(ctx: CommandContext) -> dict[str, str]:
    """Return all packages and the paths of their APKs."""
    names = sorted({*PACKAGES, KEYBOARD_PACKAGE, *ctx.phone.tasks.apps})
    return {name: apk_path(name) for name in names}


def _list(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm list packages [-f3sdeiU] [--show-versioncode] [FILTER]`, `features`, `users`."""
    what, *options = arguments or [""]
    if what == "features":
        for feature in _FEATURES:
            ctx.print(f"feature:{feature}")
    elif what == "users":
        ctx.print("Users:\n\tUserInfo{0:Owner:c13} running")
    elif what in ("permissions", "permission-groups", "instrumentation", "libraries"):
        return 0
    elif what in ("package", "packages"):
        user = options[options.index("--user") + 1] if "--user" in options[:-1] else "0"
        is_in_front = user in ("all", "current", ctx.phone.faults.get("user") or "0")
        filters = [word for word in options if not word.startswith("-") and word != user]
        for package, path in all_packages(ctx).items():
            if not is_in_front and package not in PACKAGES:
                continue
            if _is_wanted(ctx, package, options) and all(f in package for f in filters):
                line = f"package:{path}={package}" if "-f" in options else f"package:{package}"
                ctx.print(line + _details(ctx, package, options))
    else:
        return ctx.fail(f"Error: unknown list type '{what}'", 255)
    return 0


def _details(ctx: CommandContext, package: str, options: list[str]) -> str:
    """Return the details that `pm list packages` prints after the name."""
    app = ctx.phone.tasks.apps.get(package)
    _, code = SYSTEM_VERSION if app is None else app.version
    asked = {
        "--show-versioncode": f" versionCode:{code}",
        "-i": "  installer=null",
        "-U": " uid:10100",
    }
    return "".join(text for option, text in asked.items() if option in options)


def _is_wanted(ctx: CommandContext, package: str, options: list[str]) -> bool:
    is_enabled, is_system = package not in ctx.phone.tasks.disabled, package in PACKAGES
    excluding = {"-s": not is_system, "-3": is_system, "-d": is_enabled, "-e": not is_enabled}
    return not any(excludes and option in options for option, excludes in excluding.items())


def _path(ctx: CommandContext, arguments: list[str]) -> int:
    path = all_packages(ctx).get(arguments[-1] if arguments else "")
    return 1 if path is None else ctx.print(f"package:{path}")


def _clear(ctx: CommandContext, arguments: list[str]) -> int:
    package = arguments[-1] if arguments else ""
    if package not in all_packages(ctx):
        return ctx.print("Failed") + 1
    if package in ctx.phone.tasks.apps:
        ctx.phone.tasks.stop(package)
    return ctx.print("Success")


def _permission(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm grant|revoke PACKAGE PERMISSION`: every app has all permissions."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] not in all_packages(ctx):
        return ctx.fail(f"Error: Unknown package: {' '.join(words[:1])}", 255)
    return 0


def _enable(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm enable|disable|disable-user [--user N] PACKAGE`."""
    package = (arguments[-1] if arguments else "").partition("/")[0]
    tasks = ctx.phone.tasks
    if package not in all_packages(ctx):
        return ctx.fail(f"Error: java.lang.IllegalArgumentException: Unknown package: {package}")
    if ctx.arguments[0] == "enable":
        tasks.disabled.discard(package)
        return ctx.print(f"Package {package} new state: enabled")
    tasks.disabled.add(package)
    tasks.stop(package)
    return ctx.print(f"Package {package} new state: disabled-user")


def _activities(ctx: CommandContext, intent: Intent) -> list[str]:
    """Return the activities that can handle an intent, as `package/.Class`."""
    tasks = ctx.phone.tasks
    apps = {name: app.app.activity for name, app in tasks.apps.items()}
    known = {LAUNCHER: LAUNCHER_ACTIVITY, **ACTIVITIES, **apps}
    known = {name: known[name] for name in known if name not in tasks.disabled}
    kind, action = intent.category.rpartition(".")[2], intent.action.rpartition(".")[2]
    if kind == "HOME":
        found = [LAUNCHER]
    elif action == "VIEW" and (viewer := find_viewer(ctx.phone.tasks, intent)):
        found = [viewer]
    elif action.endswith("SETTINGS"):
        found = [SETTINGS]
    elif action in ("DIAL", "CALL"):
        found = [DIALER]
    elif action in ("", "MAIN"):
        found = sorted(known)
    else:
        found = []
    package = intent.package or intent.component.partition("/")[0]
    short = {name: activity.replace(f"{name}.", ".", 1) for name, activity in known.items()}
    return [f"{name}/{short[name]}" for name in found if name in short and package in ("", name)]


def _query(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm query-activities|resolve-activity [--brief | --components] INTENT`."""
    resolves = ctx.arguments[0] == "resolve-activity"
    words = [word for word in arguments if word not in ("--brief", "--components")]
    if "--query-flags" in words[:-1]:
        at = words.index("--query-flags")
        del words[at : at + 2]
    try:
        found = _activities(ctx, read_intent(words))
    except ValueError as error:
        return ctx.fail(f"Error: {error}", 255)
    if not found:
        return ctx.print("No activity found" if resolves else "No activities found")
    if not resolves and "--components" in arguments:
        return ctx.print("\n".join(found))
    if resolves:
        return _print_match(ctx, "", found[0], arguments)
    ctx.print(f"{len(found)} activities found:")
    for number, component in enumerate(found):
        ctx.print(f"  Activity #{number}:")
        _print_match(ctx, "    ", component, arguments)
    return 0


def _print_match(ctx: CommandContext, indent: str, component: str, arguments: list[str]) -> int:
    match = "match=0x108000 specificIndex=-1 isDefault=true"
    ctx.print(f"{indent}priority=0 preferredOrder=0 {match}")
    if "--brief" in arguments:
        return ctx.print(f"{indent}{component}")
    package, _, activity = component.partition("/")
    name = component_name(package, activity).partition("/")[2]
    ctx.print(f"{indent}ActivityInfo:\n{indent}  name={name}\n{indent}  packageName={package}")
    return ctx.print(f"{indent}  enabled=true exported=true directBootAware=false")


async def _install(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm install [options] PATH`, or `-S SIZE` with the APK on standard input."""
    return _add(ctx, await _apk(ctx, arguments))


def _create_session(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm install-create [options]`: begin an installation session of several APKs."""
    number = next(n for n in count(1) if ctx.phone.files.find(_SESSION.format(n)) is None)
    ctx.phone.files.make_folders(_SESSION.format(number))
    return ctx.print(f"Success: created install session [{number}]")


async def _write_session(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm install-write -S SIZE SESSION NAME [PATH | -]`."""
    options, words = _split(arguments)
    session, name, *paths = (*words, "", "")[: max(2, len(words))]
    folder = _SESSION.format(session)
    if not session.isdecimal() or ctx.phone.files.find(folder) is None or "/" in name or not name:
        return ctx.fail("Error: java.lang.SecurityException: Caller has no access to session", 255)
    sized = ["-S", options["-S"]] if "-S" in options else []
    content = await _apk(ctx, [*sized, *(paths or ["-"])])
    with _storing():
        ctx.phone.files.write(f"{folder}/{name}", content)
    return ctx.print(f"Success: streamed {len(content)} bytes")


def _end_session(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm install-commit SESSION`, `pm install-abandon SESSION`."""
    _, words = _split(arguments)
    files, session = ctx.phone.files, (words or [""])[0]
    folder = _SESSION.format(session)
    if not session.isdecimal() or files.find(folder) is None:
        return ctx.fail("Error: java.lang.SecurityException: Caller has no access to session", 255)
    parts = {name: files.read(f"{folder}/{name}") for name in files.names(folder)}
    files.remove(folder, recursive=True)
    if ctx.arguments[0] == "install-abandon":
        return ctx.print("Success")
    # Only the base APK, which adb sends first, needs an activity; the splits are ignored.
    return _add(ctx, next((parts[name] for name in parts if "split" not in name), b""))


def _uninstall(ctx: CommandContext, arguments: list[str]) -> int:
    """`pm uninstall [-k] PACKAGE`."""
    _, words = _split(arguments)
    package = words[0] if words else ""
    if ctx.phone.tasks.uninstall(package):
        if ctx.phone.files.find(apk_path(package)) is not None:
            ctx.phone.files.remove(apk_path(package))
        return ctx.print("Success")
    known = package in PACKAGES
    reason = "DEVICE_POLICY_MANAGER" if known else "INTERNAL_ERROR"
    raise InstallFailure(f"DELETE_FAILED_{reason}")


async def _apk(ctx: CommandContext, arguments: list[str]) -> bytes:
    """Read an APK from a path or from standard input."""
    options, words = _split(arguments)
    files, content = ctx.phone.files, bytearray()
    if words and words[-1] != "-":
        try:
            return files.read(ctx.path(words[-1]))
        except OSError as error:
            raise InstallFailure(f"INSTALL_FAILED_INVALID_URI: {error.strerror}") from error
    num_bytes = number_of(options.get("-S"))
    with _storing():
        if num_bytes is None or num_bytes > _MAX_APK_BYTES:
            raise OSError(27, "bad size")
        files.reserve(num_bytes)
    try:
        while len(content) < num_bytes and (chunk := await ctx.io.read()):
            content += chunk
    finally:
        files.release(num_bytes)
    if len(content) < num_bytes:
        got = f"got {len(content)} of {num_bytes} bytes"
        raise InstallFailure(f"INSTALL_FAILED_INVALID_APK: {got}")
    return bytes(content)


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    """Report storage errors in the package manager's format."""
    try:
        yield
    except OSError as error:
        raise InstallFailure(f"INSTALL_FAILED_INSUFFICIENT_STORAGE: {error.strerror}") from error


def _add(ctx: CommandContext, apk: bytes) -> int:
    """Install an app from an APK; apps implemented in Python keep their code."""
    manifest = read_manifest(apk)
    package, tasks, files = manifest.package, ctx.phone.tasks, ctx.phone.files
    if package in PACKAGES or package == KEYBOARD_PACKAGE:
        raise InstallFailure(f"INSTALL_FAILED_UPDATE_INCOMPATIBLE: {package}")
    with _storing():
        files.make_folders(apk_path(package).rpartition("/")[0])
        files.write(apk_path(package), apk)
    known = tasks.apps.get(package)
    if known is None or known.manifest is not None:
        page = TextPage(package, manifest.activity)
        tasks.install(InstalledApp(app=page, manifest=manifest))
    return ctx.print("Success")


def _split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split arguments into options with their values, and operands."""
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
    "enable": _enable,
    "disable-user": _enable,
    "disable": _enable,
    "query-activities": _query,
    "resolve-activity": _query,
    "install": _install,
    "install-create": _create_session,
    "install-write": _write_session,
    "install-commit": _end_session,
    "install-abandon": _end_session,
    "uninstall": _uninstall,
}
