"""Commands for smaller services: appops, cmd location."""

import re

from virtual_phone.commands.command_options import without_user
from virtual_phone.commands.command_table import command
from virtual_phone.commands.pm import all_packages
from virtual_phone.shell.interpreter import CommandContext

_MODES = ("allow", "ignore", "deny", "default", "foreground")
_OPERATION = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
OPS, LOCATIONS = "appops", "location"
"""Settings namespaces that hold the state of these services."""
_PROVIDER = re.compile(r"[a-z_]{1,40}")
_LOCATION = re.compile(r"(-?\d{1,3}(?:\.\d{1,12})?),(-?\d{1,3}(?:\.\d{1,12})?)")


@command("appops")
def appops(ctx: CommandContext) -> int:
    """`appops get PACKAGE [OP] | set PACKAGE OP MODE | reset [PACKAGE]`."""
    verb, *arguments = ctx.arguments or [""]
    words = [word for word in without_user(arguments) if word != "--uid"]
    settings, package = ctx.phone.settings, (words or [""])[0]
    if verb == "reset":
        for key, _ in settings.in_namespace(OPS):
            if package in ("", key.partition(" ")[0]):
                settings.delete(OPS, key)
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
            for key, mode in settings.in_namespace(OPS)
            if key.startswith(f"{package} ") and key.endswith(f" {operation}" * bool(operation))
        ]
        default = ["Default mode: allow"] * bool(operation)
        return ctx.print("\n".join(found or ["No operations.", *default]))
    if words[2] not in _MODES:
        return ctx.fail(f"Error: Mode {words[2][:100]} is not valid", 255)
    if words[2] == "default":
        settings.delete(OPS, f"{package} {operation}")
    else:
        settings.put(OPS, f"{package} {operation}", words[2])
    return 0


@command("cmd location")
def location(ctx: CommandContext) -> int:
    """`cmd location is-location-enabled | set-location-enabled BOOL | providers VERB NAME ...`."""
    words, settings = without_user(ctx.arguments), ctx.phone.settings
    if words == ["is-location-enabled"]:
        return ctx.print("false" if settings.get("secure", "location_mode") == "0" else "true")
    if words[:1] == ["set-location-enabled"] and words[1:] in (["true"], ["false"]):
        settings.put("secure", "location_mode", "3" if words[1] == "true" else "0")
        return 0
    if words[:1] != ["providers"] or len(words) < 3 or not _PROVIDER.fullmatch(words[2]):
        return ctx.fail(f"Unknown command: {' '.join(words)[:200]}", 255)
    verb, name, *rest = words[1:]
    if verb == "add-test-provider":
        settings.put(LOCATIONS, name, "")
        return 0
    if settings.get(LOCATIONS, name) is None and verb != "send-extra-command":
        error = f"java.lang.IllegalArgumentException: provider '{name}' is not a test provider"
        return ctx.fail(error, 255)
    if verb == "set-test-provider-location":
        value = rest[rest.index("--location") + 1] if "--location" in rest[:-1] else ""
        if not _LOCATION.fullmatch(value):
            return ctx.fail("java.lang.IllegalArgumentException: Missing location option", 255)
        settings.put(LOCATIONS, name, value)
    elif verb == "remove-test-provider":
        settings.delete(LOCATIONS, name)
    elif verb not in ("set-test-provider-enabled", "send-extra-command"):
        return ctx.fail(f"Unknown command: providers {verb[:100]}", 255)
    return 0
