"""Commands of the phone's shell: a table with one function per command.

To add a command, write a function with `@command("name")` in one of these modules, or in a new
module that is imported here.
"""

from virtual_phone.commands import (  # noqa: F401 - importing them fills the table
    am,
    builtins,
    dumpsys,
    dumpsys_static_services,
    event_commands,
    input_commands,
    logcat,
    network_commands,
    pm,
    process_commands,
    screen_commands,
    service_commands,
    system_commands,
    toybox,
    uiautomator,
)
from virtual_phone.commands.command_table import COMMANDS, command

__all__ = ["COMMANDS", "command"]
