"""The table of commands."""

from collections.abc import Callable

from agentrl.phone.shell import Run

COMMANDS: dict[str, Run] = {}


def command(*names: str) -> Callable[[Run], Run]:
    """Put a function into the table under one or several names."""

    def register(run: Run) -> Run:
        for name in names:
            assert name not in COMMANDS, name
            COMMANDS[name] = run
        return run

    return register
