"""The client side of ADB: the adb server, connections to it, and shells on a phone.

`adb_server` finds adb and starts its server, `adb_socket` is one connection to it,
`device_transport` opens the services of one phone, `shell_script` and `adb_shells` run commands
there, `app_commands` start apps and read their state. Nothing here knows about screens.
"""

from agentrl.devices.adb.adb_server import AdbServer, find_adb

__all__ = ["AdbServer", "find_adb"]
