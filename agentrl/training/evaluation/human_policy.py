"""A human player, who can undo turns."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.errors import ConfigError
from agentrl.policies.policy import Answer, answer_without_tokens
from agentrl.types import Message
from agentrl.worker_thread import Worker


class NothingPlayed(ConfigError):
    """The game ended before its first turn."""

    def __init__(self) -> None:
        super().__init__("the game ended before its first turn; nothing was recorded")


class UndoRequested(Exception):
    """Raised when the person undoes the last turn."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PlayedReply:
    """A person's reply."""

    seen: str
    """Digest of the message that the person replied to."""
    text: str


class HumanPolicy:
    """A human player of one episode.

    Args:
        ask: returns the reply, or None to stop. It may block, and may raise `UndoRequested`.
        show: called with each message that the person is asked to reply to.
        repeated: replies to give before asking the person, provided that each message is identical
            to the one that the reply was originally given to.
        expected: digest of the message expected after the repeated replies.
        on_difference: called with the number, from 1, of the first turn whose message differs; the
            person continues from there.
    """

    def __init__(
        self,
        ask: Callable[[], str | None],
        show: Callable[[Message], None],
        repeated: Sequence[PlayedReply] = (),
        expected: str = "",
        on_difference: Callable[[int], None] = lambda turn: None,
    ) -> None:
        self._ask, self._show, self._on_difference = ask, show, on_difference
        self._repeated = list(repeated)
        # Also check the message after the repeated replies, because they must lead to it again.
        self._expected = [*(reply.seen for reply in repeated), expected] if expected else []
        self.replies: list[PlayedReply] = []
        """All replies so far."""
        self.undo_requested = False
        """True if the episode ended because the person undid the last turn."""
        self.has_stopped = False
        """True if the episode ended because the person stopped it."""
        self.has_caught_up = not self._expected
        """True if all repeated replies were given and led to the same messages as before."""

    def start_episode(self, instructions: str, seed: int) -> "HumanSession":
        """Start the episode; the seed is not used."""
        return HumanSession(self)

    def reply(self, message: Message) -> str | None:
        """Return the next reply; None stops the game."""
        turn, seen = len(self.replies), message_digest(message)
        text = self._repeated_reply(turn, seen)
        if text is None:
            self._show(message)
            try:
                text = self._ask()
            except UndoRequested:
                self.undo_requested = True
        if text is None:
            self.has_stopped = True
        else:
            self.replies.append(PlayedReply(seen=seen, text=text))
        return text

    def _repeated_reply(self, turn: int, seen: str) -> str | None:
        if self.has_caught_up or turn >= len(self._expected):
            return None
        if seen != self._expected[turn]:
            # The game has diverged, so the old replies no longer apply.
            self._expected.clear()
            self._on_difference(turn + 1)
            return None
        if turn < len(self._repeated):
            return self._repeated[turn].text
        self.has_caught_up = True
        return None


class HumanSession:
    """One episode of a human player."""

    def __init__(self, player: HumanPolicy) -> None:
        self._player = player
        # Ask in a separate thread, because waiting for a person must not block the event loop or
        # the exit.
        self._worker = Worker("human")

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """Show the message to the person, and return the reply.

        Raises:
            NothingPlayed: the player stopped before the first turn.
        """
        text = await self._worker.call(self._player.reply, message)
        # Without a turn, there is nothing to record.
        if text is None and not self._player.replies:
            raise NothingPlayed
        return None if text is None else answer_without_tokens(text, message.all_images)

    def close(self) -> None:
        """End the episode."""
        self._worker.close()


def message_digest(message: Message) -> str:
    """Return a digest of all content of a message."""
    digest = hashlib.blake2b(message.text.encode("utf-8", "replace"), digest_size=16)
    for image in message.images:
        digest.update(str(image.shape).encode())
        digest.update(image.tobytes())
    return digest.hexdigest()
