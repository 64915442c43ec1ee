"""Commands about an app: start it, find out whether it is installed, read its published state."""

import json
import re
from collections.abc import Mapping

from agentrl.devices.adb.shell_script import Command
from agentrl.devices.device import AppState, CommandResult, Device
from agentrl.errors import DeviceError
from virtual_phone.apps.app import state_path

_NAME = re.compile(r"[A-Za-z_][\w.]{0,254}", re.ASCII)
_ACTIVITY = re.compile(r"[A-Za-z_.][\w.$]{0,254}", re.ASCII)


def package_name(text: str) -> str:
    """Validate a package name and return it.

    Quoting keeps a name from being run as a command, but not from being read as an option or used
    as a path out of the folder where apps publish their state.
    """
    if not _NAME.fullmatch(text):
        raise DeviceError(f"{text[:80]!r} is not a package name such as org.example.game")
    return text


def start_command(package: str, activity: str, extras: Mapping[str, str]) -> Command:
    """Return the command that (re)starts an app and waits until it is shown."""
    if not _ACTIVITY.fullmatch(activity):
        raise DeviceError(f"{activity[:80]!r} is not an activity name such as .Main")
    options = [word for key, value in extras.items() for word in ("--es", key, value)]
    # -S first stops a running instance; -W waits until the app is drawn.
    return ("am", "start", "-S", "-W", "-n", f"{package_name(package)}/{activity}", *options)


def has_package(device: Device, package: str) -> bool:
    """Return whether a package is installed on a phone."""
    # The current user may not be the first user (a guest, a second space).
    user = device.shell("am", "get-current-user").strip()
    users = ("--user", user) if user.isdecimal() else ()
    return f"package:{package}" in device.shell("pm", "list", "packages", *users, package).split()


def read_state_command(package: str) -> tuple[str, ...]:
    """Return the command whose result `parse_counted_state` and `parse_state` parse."""
    return ("cat", state_path(package))


def parse_counted_state(result: CommandResult) -> AppState | None:
    """Parse a state that has a touch count; None for any other output."""
    try:
        state = json.loads(result.output) if not result.code else None
    except (ValueError, RecursionError):  # not a state, or read while it was being written
        return None
    # Only the count shows whether the app has handled a touch; `True` does not count as an int.
    return state if isinstance(state, dict) and type(state.get("touches")) is int else None


def parse_state(package: str, result: CommandResult) -> AppState:
    """Parse a published state, whatever it contains."""
    if result.code:
        raise DeviceError(f"{package} publishes no state: {result.output.strip()}")
    try:
        state = json.loads(result.output)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"the state of {package} is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise DeviceError(f"the state of {package} is not a JSON object")
    return state
