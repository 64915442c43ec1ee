"""What the phone's shell can do: one function a command, in a table.

A new command is a function with `@command("name")` in one of these files, or in a new file that
is imported here.
"""

from agentrl.phone.commands import (
    agentrl,
    am,
    conditions,
    content,
    disk,
    dumpsys,
    files,
    grep,
    input,
    logcat,
    net,
    pm,
    record,
    screen,
    system,
    text,
    words,
)
from agentrl.phone.commands.table import COMMANDS, command

__all__ = [
    "COMMANDS",
    "agentrl",
    "am",
    "command",
    "conditions",
    "content",
    "disk",
    "dumpsys",
    "files",
    "grep",
    "input",
    "logcat",
    "net",
    "pm",
    "record",
    "screen",
    "system",
    "text",
    "words",
]
