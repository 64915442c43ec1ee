"""The client side of ADB: the adb server, connections to it, and shells on a phone.

`server` finds and starts the adb server, `link` is one socket to it, `line` opens the services of
one phone, `script` and `shells` run commands there. Nothing here knows about screens.
"""

from agentrl.devices.adb.adb_server import AdbServer, find_adb

__all__ = ["AdbServer", "find_adb"]
