"""The command that starts an app, the names that it takes, and whether it is there and in front."""

import re
import shlex
from collections.abc import Iterable, Mapping

from agentrl.devices.protocol import Device
from agentrl.devices.script import Command, Gate
from agentrl.devices.window import WINDOW
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


def in_front_command(packages: Iterable[str]) -> Gate:
    """The command that fails where none of these packages is in front, as `package_in` tells.

    Raises:
        DeviceError: one is no name of a package.
    """
    names = "|".join(sorted(re.escape(package_name(package)) for package in packages))
    pattern = rf"^ *mCurrentFocus=Window\{{[^ ]+ (u[0-9]+ )?({names})[ /}}]"
    # The first line alone: further ones can only be titles that hold line breaks.
    front = f"{{ {WINDOW[-1]}; }} | grep -m 1 mCurrentFocus="
    return Gate(("sh", "-c", f"{front} | grep -qE {shlex.quote(pattern)}"))


def has_package(device: Device, package: str) -> bool:
    """Whether a package is installed on a phone.

    Raises:
        DeviceError: the phone does not say.
    """
    return f"package:{package}" in device.shell("pm", "list", "packages", package).split()
