"""Toybox programs that work on text and files."""

from virtual_phone.commands.toybox import (  # noqa: F401 - importing them fills the table
    file_commands,
    file_tools,
    find,
    grep,
    text_commands,
    text_programs,
)
