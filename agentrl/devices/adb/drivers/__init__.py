"""The libraries that speak ADB, and the little in which they differ.

A driver is a `Link`: how it connects to the adb server and how it learns that a request was
accepted. Quoting, deadlines, reading and typed errors are the same code for all.
"""

import importlib
from functools import cache

from agentrl.devices.adb.adb_socket import Link
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

DRIVERS = {
    "adbutils": "agentrl.devices.adb.drivers.adbutils_link:AdbutilsLink",
    "ppadb": "agentrl.devices.adb.drivers.ppadb_link:PpadbLink",
}


@cache
def link_of(driver: str) -> type[Link]:
    """The connections of a driver.

    Raises:
        ConfigError: there is no such driver, or its library is not installed.
    """
    if driver not in DRIVERS:
        known = ", ".join(DRIVERS)
        raise ConfigError(
            f"devices.driver={driver} is none of {known}{did_you_mean(driver, DRIVERS)}"
        )
    module, _, name = DRIVERS[driver].partition(":")
    try:
        found: type[Link] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"devices.driver={driver}: its library is not installed ({error}); "
            f"say pip install 'agentrl[{driver}]', or take devices.driver=adbutils"
        ) from error
    return found
