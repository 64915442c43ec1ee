"""Starting an app: the command, valid names, and whether it is installed."""

import re
from collections.abc import Mapping

from agentrl.devices.adb.shell_script import Command
from agentrl.devices.device import Device
from agentrl.errors import DeviceError

_NAME = re.compile(r"[A-Za-z_][\w.]{0,254}", re.ASCII)
_ACTIVITY = re.compile(r"[A-Za-z_.][\w.$]{0,254}", re.ASCII)


def package_name(text: str) -> str:
    """The package name itself, once validated.

    Quoting prevents a name from being run as a command, but not from being read as an option, or
    from being a path out of the folder where apps publish their state.

    Raises:
        DeviceError: not a valid package name.
    """
    if not _NAME.fullmatch(text):
        raise DeviceError(f"{text[:80]!r} is not a package name such as org.example.game")
    return text


def start_command(package: str, activity: str, extras: Mapping[str, str]) -> Command:
    """The command that (re)starts an app and waits until it is shown.

    Raises:
        DeviceError: not a valid package or activity name.
    """
    if not _ACTIVITY.fullmatch(activity):
        raise DeviceError(f"{activity[:80]!r} is not an activity name such as .Main")
    options = [word for key, value in extras.items() for word in ("--es", key, value)]
    return ("am", "start", "-S", "-W", "-n", f"{package_name(package)}/{activity}", *options)


def has_package(device: Device, package: str) -> bool:
    """Whether a package is installed on a phone.

    Raises:
        DeviceError: the phone failed.
    """
    return f"package:{package}" in device.shell("pm", "list", "packages", package).split()
