"""Toybox programs that work on text and files."""

from virtual_phone.commands.toybox import (  # noqa: F401 - importing them fills the table
    bashkit_programs,
    file_commands,
    file_status_commands,
    find,
    grep,
    text_commands,
)
