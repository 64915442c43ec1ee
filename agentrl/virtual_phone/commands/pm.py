"""The package manager command: pm."""

from collections.abc import Awaitable, Callable

from agentrl.virtual_phone.apps.installed_app import component_name
from agentrl.virtual_phone.apps.system_apps import ACTIVITIES, KEYBOARD_PACKAGE, PACKAGES
from agentrl.virtual_phone.commands.app_installation import (
    abandon,
    commit,
    create,
    install,
    uninstall,
    write,
)
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.command_context import CommandContext

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
    "install": install,
    "uninstall": uninstall,
    "install-create": create,
    "install-write": write,
    "install-commit": commit,
    "install-abandon": abandon,
}
