"""The calls of a phone game by name."""

from collections.abc import Mapping

from agentrl.actions.action_calls import ActionCall, ActionSet
from agentrl.errors import ActionError

MODES = ("touch", "calls")
"""How a model writes actions: as touches at positions, or as calls by name."""


class NamedCalls:
    """The calls of a game, indexed as in a `Discrete` space, and how a model writes them."""

    def __init__(self, calls: Mapping[str, int], style: str = "tag") -> None:
        self.grammar = ActionSet(calls, style)
        self._counts = dict(zip(self.grammar.names, calls.values(), strict=True))
        self._forms = dict(zip(self.grammar.names, calls, strict=True))
        self._all = [
            (name, index if self._has_argument(name) else None)
            for name, count in self._counts.items()
            for index in range(count)
        ]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> tuple[str, int | None]:
        """Return a call's name, and its argument if it has one."""
        return self._all[number]

    def say(self, name: str, index: int | None = None) -> str:
        """Return the text with which a model makes a call."""
        return self.grammar.format(name, *(() if index is None else (str(index),)))

    def read(self, reply: str) -> int:
        """Return the index of the call in a reply.

        Raises:
            ActionError: the reply has no call, or its call does not exist.
        """
        call = self.grammar.parse(reply)
        return self._all.index((call.name, self._argument(call)))

    def _argument(self, call: ActionCall) -> int | None:
        if not call.arguments:
            return None
        said, count = call.arguments[0], self._counts[call.name]
        if not said.isascii() or not said.isdecimal() or len(said) > 9 or int(said) >= count:
            raise ActionError(f"{call.name} takes a number from 0 to {count - 1}, not {said[:20]}")
        return int(said)

    def _has_argument(self, name: str) -> bool:
        return "()" not in (form := self._forms[name]) and form != name
