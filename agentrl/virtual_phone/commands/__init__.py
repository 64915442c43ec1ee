"""What the phone's shell can do: one function a command, in a table.

A new command is a function with `@command("name")` in one of these files, or in a new file that
is imported here.
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
