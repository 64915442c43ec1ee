"""Commands for the phone's services: service, cmd and its subcommands, svc, appops."""

import math
import re
from collections.abc import Awaitable

from virtual_phone.commands.command_options import without_user
from virtual_phone.commands.command_table import COMMANDS, command
from virtual_phone.commands.dumpsys import SECTIONS
from virtual_phone.commands.pm import all_packages
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.phone_settings import APP_OPS
from virtual_phone.virtual_phone import QUICK_REBOOT_S

_INTERFACES = {
    "activity": "android.app.IActivityManager",
    "alarm": "android.app.IAlarmManager",
    "audio": "android.media.IAudioService",
    "connectivity": "android.net.IConnectivityManager",
    "display": "android.hardware.display.IDisplayManager",
    "input": "android.hardware.input.IInputManager",
    "input_method": "com.android.internal.view.IInputMethodManager",
    "location": "android.location.ILocationManager",
    "notification": "android.app.INotificationManager",
    "package": "android.content.pm.IPackageManager",
    "power": "android.os.IPowerManager",
    "wifi": "android.net.wifi.IWifiManager",
    "window": "android.view.IWindowManager",
}
_SERVICES = {
    "activity": "am",
    "agentrl": "agentrl",
    "appops": "appops",
    "bluetooth_manager": "cmd bluetooth_manager",
    "connectivity": "cmd connectivity",
    "input": "input",
    "input_method": "ime",
    "location": "cmd location",
    "package": "pm",
    "phone": "cmd phone",
    "settings": "settings",
    "wifi": "cmd wifi",
    "window": "wm",
}
"""The commands that `cmd` runs, by service."""
_QUIET_SERVICES = frozenset(["deviceidle", "notification", "statusbar", "uimode"])
_SVC_SWITCHES = {"wifi": "wifi_on", "data": "mobile_data", "bluetooth": "bluetooth_on"}
"""Settings switched by `svc`."""
_MODES = ("allow", "ignore", "deny", "default", "foreground")
_OPERATION = re.compile(r"[A-Z][A-Z0-9_]{1,60}")


@command("service")
def service(ctx: CommandContext) -> int:
    """`service list`, `service check NAME`, `service call NAME CODE ...` (has no effect)."""
    verb, *rest = ctx.arguments or [""]
    if verb == "list":
        ctx.print(f"Found {len(SECTIONS)} services:")
        for number, name in enumerate(sorted(SECTIONS)):
            ctx.print(f"{number}\t{name}: [{_INTERFACES.get(name, '')}]")
        return 0
    if verb == "check" and rest:
        return ctx.print(f"Service {rest[0]}: {'' if rest[0] in SECTIONS else 'not '}found")
    if verb == "call" and rest:
        if rest[0] not in SECTIONS:
            return ctx.fail(f"service: Service {rest[0]} does not exist", 10)
        if len(rest) < 2:
            return ctx.fail("service: No code specified for call", 10)
        return ctx.print("Result: Parcel(00000000    '....')")
    return ctx.fail("Usage: service [-h|-?]\n       service list\n       service check SERVICE", 10)


@command("cmd")
def cmd(ctx: CommandContext) -> int | Awaitable[int]:
    """`cmd service ...`: an alternative name for system commands."""
    words = [word for word in ctx.arguments if word not in ("-w", "-l")]
    service, *ctx.arguments = words or [""]
    if service in _SERVICES:
        ctx.name = _SERVICES[service]
        return COMMANDS[ctx.name](ctx)
    if service in _QUIET_SERVICES:
        return 0
    if service == "battery":
        ctx.arguments = ["battery", *ctx.arguments]
        return COMMANDS["dumpsys"](ctx)
    return ctx.fail(f"cmd: Can't find service: {service}", 20)


@command("svc")
def svc(ctx: CommandContext) -> int:
    """`svc power stayon true|usb|ac|false`, `svc power reboot`, `svc wifi enable|disable`."""
    phone = ctx.phone
    what, verb, *rest = (*ctx.arguments, "", "")[: max(2, len(ctx.arguments))]
    if what in _SVC_SWITCHES and verb in ("enable", "disable"):
        phone.settings.put("global", _SVC_SWITCHES[what], str(int(verb == "enable")))
    elif what == "power" and verb == "stayon":
        value = {"true": "15", "ac": "1", "usb": "2", "wireless": "4"}.get(
            (rest or ["true"])[0], "0"
        )
        phone.settings.put("global", "stay_on_while_plugged_in", value)
        if value != "0":
            phone.wake()
    elif what == "power" and verb == "reboot":
        phone.on_power("reboot", QUICK_REBOOT_S)
    elif what == "power" and verb == "shutdown":
        phone.on_power("offline", math.inf)
    elif what not in ("usb", "nfc", "power"):
        return ctx.fail("Available commands: power, data, wifi, usb, nfc, bluetooth", 1)
    return 0


@command("appops")
def appops(ctx: CommandContext) -> int:
    """`appops get PACKAGE [OP] | set PACKAGE OP MODE | reset [PACKAGE]`."""
    verb, *arguments = ctx.arguments or [""]
    words = [word for word in without_user(arguments) if word != "--uid"]
    settings, package = ctx.phone.settings, (words or [""])[0]
    if verb == "reset":
        for key, _ in settings.in_namespace(APP_OPS):
            if package in ("", key.partition(" ")[0]):
                settings.delete(APP_OPS, key)
        return ctx.print("Reset all modes to default values")
    if verb not in ("get", "set") or len(words) not in ((1, 2) if verb == "get" else (3,)):
        return ctx.fail(f"Unknown command: {' '.join(ctx.arguments)[:200]}", 255)
    if package not in all_packages(ctx):
        return ctx.fail(f"Error: No UID for {package} in user 0", 255)
    operation = words[1].upper().removeprefix("ANDROID:") if len(words) > 1 else ""
    if operation and not _OPERATION.fullmatch(operation):
        return ctx.fail(f"Error: Unknown operation string: {words[1][:100]}", 255)
    if verb == "get":
        found = [
            f"{key.partition(' ')[2]}: {mode}"
            for key, mode in settings.in_namespace(APP_OPS)
            if key.startswith(f"{package} ") and key.endswith(f" {operation}" * bool(operation))
        ]
        default = ["Default mode: allow"] * bool(operation)
        return ctx.print("\n".join(found or ["No operations.", *default]))
    if words[2] not in _MODES:
        return ctx.fail(f"Error: Mode {words[2][:100]} is not valid", 255)
    if words[2] == "default":
        settings.delete(APP_OPS, f"{package} {operation}")
    else:
        settings.put(APP_OPS, f"{package} {operation}", words[2])
    return 0


@command("cmd location")
def location(ctx: CommandContext) -> int:
    """`cmd location is-location-enabled | set-location-enabled true|false`."""
    words, settings = without_user(ctx.arguments), ctx.phone.settings
    if words == ["is-location-enabled"]:
        return ctx.print("false" if settings.get("secure", "location_mode") == "0" else "true")
    if words in (["set-location-enabled", "true"], ["set-location-enabled", "false"]):
        settings.put("secure", "location_mode", "3" if words[1] == "true" else "0")
        return 0
    return ctx.fail(f"Unknown command: {' '.join(words)[:200]}", 255)


@command("cmd wifi")
def wifi(ctx: CommandContext) -> int:
    """`cmd wifi status | set-wifi-enabled enabled|disabled | list-networks | ...`."""
    verb, *rest = ctx.arguments or [""]
    settings = ctx.phone.settings
    if verb == "set-wifi-enabled" and rest[:1] in (["enabled"], ["disabled"]):
        settings.put("global", "wifi_on", str(int(rest[0] == "enabled")))
        return 0
    if verb == "status":
        is_on = settings.get("global", "wifi_on") != "0"
        ctx.print(f"Wifi is {'enabled' if is_on else 'disabled'}")
        ctx.print("Wifi scanning is only available when wifi is enabled")
        if not is_on:
            return 0
        ctx.print("==== Primary ClientModeManager instance ====")
        return ctx.print("Wifi is not connected")
    if verb in ("list-networks", "list-scan-results"):
        return ctx.print("No networks" if verb == "list-networks" else "No scan results")
    if verb in ("start-scan", "reset-connected-score"):
        return 0
    return ctx.fail(f"Unknown command: {verb}", 255)


_SWITCHES = {
    "cmd connectivity": ("airplane-mode", "airplane_mode_on"),
    "cmd phone": ("data", "mobile_data"),
    "cmd bluetooth_manager": ("", "bluetooth_on"),
}
"""By command: the verb before `enable` or `disable`, if any, and the setting to change."""


@command(*_SWITCHES)
def switch(ctx: CommandContext) -> int:
    """`cmd connectivity airplane-mode`, `cmd phone data`, `cmd bluetooth_manager`: set a switch."""
    verb, setting = _SWITCHES[ctx.name]
    words = list(ctx.arguments)
    if verb and words[:1] == [verb]:
        del words[0]
    settings = ctx.phone.settings
    if words in (["enable"], ["disable"]):
        settings.put("global", setting, str(int(words == ["enable"])))
        return 0
    if verb == "airplane-mode" and ctx.arguments == [verb]:
        is_on = settings.get("global", setting) != "0"
        return ctx.print("enabled" if is_on else "disabled")
    return ctx.fail(f"Unknown command: {' '.join(ctx.arguments)[:100]}", 255)
