"""The client side of ADB: the adb server, connections to it, and shells on a phone.

`adb_server` finds adb and starts its server, `adb_socket` is a connection to that server,
`device_transport` opens the services of a phone, `shell_script` and `adb_shells` run commands
there, and `app_commands` start apps and read their state. Nothing here depends on screens.
"""

from agentrl.devices.adb.adb_server import AdbServer, find_adb

__all__ = ["AdbServer", "find_adb"]
