"""The commands of the phone's shell: one function per command, in a table.

To add a command, write a function with `@command("name")` in one of these modules, or in a new
one that is imported here.
"""

from agentrl.virtual_phone.commands import (
    agentrl,
    am,
    builtins,
    conditions,
    content,
    disk,
    dumpsys,
    file_commands,
    grep,
    input,
    logcat,
    net,
    pm,
    screen_commands,
    screenrecord,
    system_commands,
    text_commands,
)
from agentrl.virtual_phone.commands.command_table import COMMANDS, command

__all__ = [
    "COMMANDS",
    "agentrl",
    "am",
    "builtins",
    "command",
    "conditions",
    "content",
    "disk",
    "dumpsys",
    "file_commands",
    "grep",
    "input",
    "logcat",
    "net",
    "pm",
    "screen_commands",
    "screenrecord",
    "system_commands",
    "text_commands",
]
