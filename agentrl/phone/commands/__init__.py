"""The commands of the phone's shell: one function per command, in a table.

To add a command, write a function with `@command("name")` in one of these modules, or in a new
one that is imported here.
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
