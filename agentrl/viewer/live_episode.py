"""State of an episode that a person plays or watches in the browser."""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2

from agentrl.errors import ConfigError
from agentrl.training.evaluation.interactive_play import PlayInterface
from agentrl.types import Image, Message, ScoredEpisode, Turn, without_placeholders

_MAX_ANSWER = 10_000
"""Characters."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Shown:
    """What the page shows."""

    instructions: str = ""
    ways: Sequence[str] = ()
    """Inputs that the game accepts besides text, such as `tap` and `left`."""
    words: str = ""
    pictures: tuple[Image, ...] = ()
    seen: int = 0
    """Incremented with every observation."""
    awaits_input: bool = False
    """Whether it is the person's turn."""
    input_error: str = ""
    turns: tuple[dict[str, Any], ...] = ()
    ended: dict[str, Any] | None = None


class LiveEpisode:
    """Connects the thread that plays the episode with the threads that serve the page.

    Args:
        human: whether a person plays; otherwise they watch.
    """

    def __init__(self, *, human: bool) -> None:
        self.human = human
        self.version = 0
        """Incremented with every change."""
        self._shown = _Shown()
        self._lock = threading.Lock()
        self._answers: queue.Queue[str | None] = queue.Queue()

    # --- for the thread that plays --------------------------------------------------------

    def audience(self) -> PlayInterface:
        """Callbacks that receive the episode's events and provide the answers."""
        return PlayInterface(
            show_instructions=lambda words: self._change(instructions=words),
            show_error=lambda words: self._change(input_error=words),
            show_message=self._show_message,
            show_turn=self._show_turn,
            read_input=self._read_input,
            show_gestures=lambda ways: self._change(ways=tuple(ways)),
        )

    def end(self, scored: ScoredEpisode | None, error: str = "") -> None:
        """End the episode.

        Args:
            scored: the episode; None if there is none.
            error: why it failed; empty if it did not.
        """
        ended: dict[str, Any] = {"error": error}
        if scored is not None:
            episode = scored.episode
            metrics = episode.turns[-1].info.get("metrics", {}) if episode.turns else {}
            ended = {
                "id": episode.id,
                "outcome": episode.outcome.value,
                "total": scored.total,
                "components": {k: float(sum(v)) for k, v in scored.components.items()},
                "metrics": dict(metrics),
                "error": episode.error or error,
            }
        self._change(ended=ended, awaits_input=False)

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._shown = replace(self._shown, **changes)
            self.version += 1

    def _show_message(self, message: Message) -> None:
        self._change(
            words=without_placeholders(message.text),
            pictures=tuple(image.copy() for image in message.images),
            seen=self._shown.seen + 1,
        )

    def _show_turn(self, turn: Turn) -> None:
        ended = {"reply": turn.reply, "error": turn.parse_error, "reward": turn.env_reward}
        self._change(turns=(*self._shown.turns, ended), input_error="")

    def _read_input(self) -> str | None:
        self._change(awaits_input=True)
        answer = self._answers.get()
        self._change(awaits_input=False)
        return answer

    # --- for pages ------------------------------------------------------------------------

    def now(self) -> dict[str, Any]:
        """What the page shows, as JSON values; it requests the images by number."""
        with self._lock:
            shown = self._shown
            return {
                "version": self.version,
                "human": self.human,
                "instructions": shown.instructions,
                "ways": list(shown.ways),
                "seen": shown.seen,
                "words": shown.words,
                "pictures": len(shown.pictures),
                "awaits_input": shown.awaits_input,
                "input_error": shown.input_error,
                "turns": list(shown.turns),
                "ended": shown.ended,
            }

    def picture(self, number: int) -> bytes:
        """One of the current images, as PNG.

        Raises:
            ConfigError: there is no image with this number.
        """
        with self._lock:
            pictures = self._shown.pictures
        if not 0 <= number < len(pictures):
            raise ConfigError(f"no image {number}: {len(pictures)} are shown")
        bgr = cv2.cvtColor(pictures[number], cv2.COLOR_RGB2BGR)
        done, encoded = cv2.imencode(".png", bgr, (cv2.IMWRITE_PNG_COMPRESSION, 1))
        assert done, f"cv2 cannot encode {bgr.shape}"
        return encoded.tobytes()

    def answer(self, text: str | None) -> None:
        """Pass on the person's answer; None stops the episode.

        Raises:
            ConfigError: it is not the person's turn, or the answer is empty or too long.
        """
        if text is not None and not 0 < len(text.strip()) <= _MAX_ANSWER:
            raise ConfigError(f"an answer must have 1 to {_MAX_ANSWER} characters")
        with self._lock:
            if not self._shown.awaits_input or self._shown.ended is not None:
                raise ConfigError("it is not your turn")
            self._shown = replace(self._shown, awaits_input=False)
            self.version += 1
        self._answers.put(None if text is None else text.strip())
