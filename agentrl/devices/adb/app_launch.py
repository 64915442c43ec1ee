"""The command that starts an app, the names that it takes, and whether a phone has it."""

import re
from collections.abc import Mapping

from agentrl.devices.adb.shell_script import Command
from agentrl.devices.device import Device
from agentrl.errors import DeviceError

_NAME = re.compile(r"[A-Za-z_][\w.]{0,254}", re.ASCII)
_ACTIVITY = re.compile(r"[A-Za-z_.][\w.$]{0,254}", re.ASCII)


def package_name(text: str) -> str:
    """The name itself, if a package can have it.

    Quotes keep a name from being a command; they do not keep it from being an option of one, or
    a path out of the folder that apps publish in.

    Raises:
        DeviceError: no package can.
    """
    if not _NAME.fullmatch(text):
        raise DeviceError(f"{text[:80]!r} is no name of a package, such as org.example.game")
    return text


def start_command(package: str, activity: str, extras: Mapping[str, str]) -> Command:
    """The command that starts an app afresh and waits until it is shown.

    Raises:
        DeviceError: no app can have that name.
    """
    if not _ACTIVITY.fullmatch(activity):
        raise DeviceError(f"{activity[:80]!r} is no name of an activity, such as .Main")
    told = [word for key, value in extras.items() for word in ("--es", key, value)]
    return ("am", "start", "-S", "-W", "-n", f"{package_name(package)}/{activity}", *told)


def has_package(device: Device, package: str) -> bool:
    """Whether a package is installed on a phone.

    Raises:
        DeviceError: the phone does not say.
    """
    return f"package:{package}" in device.shell("pm", "list", "packages", package).split()
