"""The adb server, the way to one phone behind it, and the shells that run there.

`server` finds and starts the adb server, `link` is one socket to it, `line` opens the services of
one phone, `script` and `shells` run commands there. Nothing here knows what a screen is.
"""

from agentrl.devices.adb.adb_server import AdbServer, find_adb

__all__ = ["AdbServer", "find_adb"]
