"""Help pages of the commands."""

from typing import Any

import typer
import typer.core

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Click settings of the root command, inherited by all other commands."""


class CommandGroup(typer.core.TyperGroup):
    """Command group that lists commands with the whole first paragraph of their help."""

    sections: dict[str, tuple[str, ...]] | None = None
    """Command names by section title; None lists all under `Commands`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of commands."""
        for title, names in (self.sections or {"Commands": tuple(self.commands)}).items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            rows = [(name, _summary(command)) for name, command in commands if not command.hidden]
            with formatter.section(title):
                formatter.write_dl(rows)


def name_arguments(command: Any) -> None:
    """Show the arguments of a command and its subcommands in capitals."""
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
    for inner in getattr(command, "commands", {}).values():
        name_arguments(inner)


def _summary(command: Any) -> str:
    """Return the first paragraph of a command's help and the names of its subcommands."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    inner = [name for name, one in getattr(command, "commands", {}).items() if not one.hidden]
    return f"{text} Commands: {', '.join(inner)}." if inner else text
