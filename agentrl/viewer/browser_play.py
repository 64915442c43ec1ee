"""State of games that a person plays or watches in the browser."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cv2

from agentrl.errors import ConfigError
from agentrl.training.evaluation.human_policy import UndoRequested
from agentrl.training.evaluation.interactive_play import GameStart, PlayInterface
from agentrl.types import Image, Message, ScoredEpisode, Turn

_MAX_ANSWER = 10_000
"""Maximum length of an answer, in characters."""
_MAX_SEED = 2**31 - 1
_POLL_S = 0.2
_NO_TURN = "there is no turn to take back"


@dataclass(slots=True, kw_only=True, frozen=True)
class _Shown:
    """Content of the page."""

    instructions: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Inputs that the game accepts in addition to free text, such as `tap` and `left`, and the text
    that each sends."""
    game: GameStart | None = None
    words: str = ""
    pictures: tuple[Image, ...] = ()
    seen: int = 0
    """Number of observations so far."""
    awaits_input: bool = False
    """Whether it is the person's turn."""
    awaits_game: bool = False
    """Whether another game can be started."""
    input_error: str = ""
    no_undo: str = ""
    """Why turns of this environment cannot be taken back; empty if they can."""
    turns: tuple[dict[str, Any], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended: dict[str, Any] | None = None
    expert: dict[str, Any] | None = None
    """The expert's game on the same seed."""
    num_recorded: int = 0


@dataclass(slots=True, kw_only=True, frozen=True)
class _Request:
    """A page's request: an answer, the end of the game, an undo or another game."""

    kind: str
    text: str = ""
    seed: int | None = None


class BrowserPlay:
    """Connection between the thread that plays and the threads that serve the page.

    Args:
        human: whether a person plays rather than watches.
        stays: when set, no further game can be started; None allows only one game.
    """

    def __init__(
        self,
        *,
        human: bool,
        stays: threading.Event | None = None,
    ) -> None:
        self.human = human
        self.training_command: str | None = None
        """Command that trains on the games a person played; None until they are recorded."""
        self.version = 0
        """Number of changes so far."""
        self._stays = stays
        self._is_stopping = False
        self._next_seed: int | None = None
        self._shown = _Shown()
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    # --- for the thread that plays --------------------------------------------------------

    def audience(self) -> PlayInterface:
        """Return callbacks that receive the game's events and supply the person's answers."""
        return PlayInterface(
            show_instructions=lambda words: self._change(instructions=words),
            show_error=lambda words: self._change(input_error=words),
            show_message=self._show_message,
            show_turn=self._show_turn,
            read_input=self._read_input,
            show_inputs=lambda inputs: self._change(inputs=inputs),
            begin_game=self._begin_game,
            disable_undo=lambda reason: self._change(no_undo=reason),
            end_game=self.end,
            next_game=self._next_game,
            show_expert=self._show_expert if self._stays is not None else None,
            is_stopping=lambda: self._is_stopping,
        )

    def stop(self) -> None:
        """End the game before the next turn, without starting another; safe in signal handlers."""
        self._is_stopping = True
        self._requests.put(_Request(kind="end"))

    def end(self, scored: ScoredEpisode | None, error: str = "") -> None:
        """End the game."""
        ended: dict[str, Any] = {"id": None, "error": error}
        if scored is not None:
            episode = scored.episode
            ended = {
                "id": episode.id,
                "outcome": episode.outcome.value,
                "truncated_by": episode.truncated_by and episode.truncated_by.value,
                "void": episode.outcome.void,
                "components": {k: float(sum(v)) for k, v in scored.components.items()},
                "error": episode.error or error,
                **_result(scored),
            }
        num_recorded = self._shown.num_recorded + (scored is not None)
        self._change(ended=ended, awaits_input=False, num_recorded=num_recorded)

    def _begin_game(self, game: GameStart) -> None:
        self._next_seed = None
        self._change(
            game=game,
            turns=(),
            metrics={},
            ended=None,
            expert=None,
            input_error="",
            awaits_game=False,
        )

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._shown = replace(self._shown, **changes)
            self.version += 1

    def _show_message(self, message: Message) -> None:
        self._change(
            words=message.transcript(),
            pictures=tuple(image.copy() for image in message.all_images),
            seen=self._shown.seen + 1,
        )

    def _show_turn(self, turn: Turn) -> None:
        ended = {"reply": turn.reply, "error": turn.parse_error, "reward": turn.env_reward}
        metrics = turn.info.get("metrics", {})
        self._change(turns=(*self._shown.turns, ended), metrics=metrics, input_error="")

    def _show_expert(self, scored: ScoredEpisode | None) -> None:
        self._change(expert={"id": None} if scored is None else _result(scored))

    def _read_input(self) -> str | None:
        if self._is_stopping:
            return None
        self._change(awaits_input=True)
        request = self._requests.get()
        self._change(awaits_input=False)
        if request.kind == "undo":
            raise UndoRequested
        self._next_seed = request.seed
        return request.text or None

    def _next_game(self) -> int | None:
        if self._next_seed is not None or self._stays is None:
            return self._next_seed
        self._change(awaits_game=True)
        while not (self._is_stopping or self._stays.is_set()):
            try:
                request = self._requests.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if request.kind == "undo":
                raise UndoRequested
            if request.kind == "new":
                return request.seed
        return None

    # --- for pages ------------------------------------------------------------------------

    def now(self) -> dict[str, Any]:
        """Return the page's content as JSON values; the page requests images by number."""
        with self._lock:
            shown, version = self._shown, self.version
        game = shown.game
        return {
            "version": version,
            "human": self.human,
            "instructions": shown.instructions,
            "inputs": dict(shown.inputs),
            "seed": game and game.seed,
            "max_turns": game and game.max_turns,
            "held_out_from": game and game.held_out_from,
            "repeats": game is not None and len(shown.turns) < game.num_repeated,
            "no_undo": _why_no_undo(shown),
            "seen": shown.seen,
            "words": shown.words,
            "pictures": len(shown.pictures),
            "awaits_input": shown.awaits_input,
            "awaits_game": shown.awaits_game,
            "input_error": shown.input_error,
            "turns": list(shown.turns),
            "metrics": dict(shown.metrics),
            "ended": shown.ended,
            "expert": shown.expert,
            "num_recorded": shown.num_recorded,
            "command": self.training_command if self.human else None,
        }

    def picture(self, number: int) -> bytes:
        """Return one of the current images, as PNG.

        Raises:
            ConfigError: the image does not exist.
        """
        with self._lock:
            pictures = self._shown.pictures
        if not 0 <= number < len(pictures):
            raise ConfigError(f"there is no image {number}; the page shows {len(pictures)}")
        bgr = cv2.cvtColor(pictures[number], cv2.COLOR_RGB2BGR)
        done, encoded = cv2.imencode(".png", bgr, (cv2.IMWRITE_PNG_COMPRESSION, 1))
        assert done, f"cv2 cannot encode {bgr.shape}"
        return encoded.tobytes()

    def answer(self, text: str | None) -> None:
        """Pass the person's answer to the game; None ends the game.

        Raises:
            ConfigError: it is not the person's turn, or the answer is empty or too long.
        """
        if text is not None and not 0 < len(text.strip()) <= _MAX_ANSWER:
            raise ConfigError(f"an answer must have 1 to {_MAX_ANSWER} characters")
        request = (
            _Request(kind="end") if text is None else _Request(kind="answer", text=text.strip())
        )
        self._ask(request, lambda shown: "" if shown.awaits_input else "it is not your turn")

    def undo(self) -> None:
        """Take back the last turn.

        Raises:
            ConfigError: the turn cannot be taken back.
        """
        self._ask(_Request(kind="undo"), _why_no_undo)

    def start_game(self, seed: int) -> None:
        """Start another game; the current game ends, and is recorded if it has a turn.

        Raises:
            ConfigError: the seed is out of range, or the game is busy.
        """
        if not 0 <= seed <= _MAX_SEED:
            raise ConfigError(f"seed={seed}: must be between 0 and {_MAX_SEED}")
        request = _Request(kind="new", seed=seed)
        self._ask(request, lambda shown: "" if _is_idle(shown) else "the game is busy; try again")

    def _ask(self, request: _Request, refusal: Callable[[_Shown], str]) -> None:
        with self._lock:
            if reason := refusal(self._shown):
                raise ConfigError(reason)
            # Accept only one request per turn, because a second one may be accidental.
            self._shown = replace(self._shown, awaits_input=False, awaits_game=False)
            self.version += 1
        self._requests.put(request)


def _is_idle(shown: _Shown) -> bool:
    return shown.awaits_input or shown.awaits_game


def _why_no_undo(shown: _Shown) -> str:
    """Return why the last turn cannot be taken back now, or '' if it can."""
    if shown.no_undo or not shown.turns:
        return shown.no_undo or _NO_TURN
    return "" if _is_idle(shown) else "the game is busy; try again"


def _result(scored: ScoredEpisode) -> dict[str, Any]:
    episode = scored.episode
    metrics = episode.turns[-1].info.get("metrics", {}) if episode.turns else {}
    return {
        "id": episode.id,
        "turns": len(episode.turns),
        "reward": scored.reward,
        "metrics": dict(metrics),
    }
