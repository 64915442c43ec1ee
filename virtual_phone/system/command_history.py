"""The history of commands run by the phone's shell."""

from collections import deque
from collections.abc import Iterator

_MAX_COMMANDS = 1000
_MAX_CHARACTERS = 2_000_000


class CommandHistory:
    """Last commands run by the shell, oldest first."""

    def __init__(self) -> None:
        self._commands: deque[tuple[str, ...]] = deque()
        self._num_characters = 0

    def add(self, command: tuple[str, ...]) -> None:
        """Record a command, dropping the oldest commands once a limit is exceeded."""
        self._commands.append(command)
        self._num_characters += _length(command)
        while len(self._commands) > _MAX_COMMANDS or self._num_characters > _MAX_CHARACTERS:
            self._num_characters -= _length(self._commands.popleft())

    def clear(self) -> None:
        """Drop all commands."""
        self._commands.clear()
        self._num_characters = 0

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Iterate from the oldest to the newest."""
        return iter(self._commands)

    def __len__(self) -> int:
        """Number of recorded commands."""
        return len(self._commands)


def _length(command: tuple[str, ...]) -> int:
    return sum(map(len, command)) + len(command)
