"""Batch reward functions: their inputs, their calls, and the check of what they return."""

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from agentrl.data import openrlhf
from agentrl.data.openrlhf import CHATML, QueryFormat
from agentrl.data.reward_inputs import IMAGE_COLUMN, ROW, env_reward
from agentrl.errors import AgentRLError, ConfigError, RewardError, describe_error
from agentrl.types import IMAGE, Episode, Image

RewardInputs = dict[str, Any]
"""The inputs of a batch function for one episode; see `inputs_of`."""
RewardRow = dict[str, float]
"""Its scores of one episode: `overall`, and further components; empty if it does not apply."""

BatchFunction = Callable[[list[RewardInputs]], Sequence[Mapping[str, Any]]]
OVERALL = "overall"
INPUT_NAMES = (
    "data_source", "response", "responses", "response_length", "response_ids", "ground_truth",
    "images", "shown", "instructions", "chat_prompt", "chat_text", "chat_messages", "screens",
    "env_rewards", "info",
)  # fmt: skip
"""The names that `inputs_of` gives besides those of the row's columns."""
_TEXTS = ("instructions", "shown", "response")
_MAX_BATCH_SIZE = 64
"""Maximum number of episodes per call, unless the function has an attribute `max_batch_size`."""


def inputs_of(episode: Episode, form: QueryFormat = CHATML) -> RewardInputs:
    """The inputs of a batch function for one episode.

    Args:
        episode: with at least one turn.
        form: the chat format of the model that has played.

    Returns:
        `response`, the last reply; `responses`, all replies; `response_length` and
        `response_ids`, the tokens of the last reply; `ground_truth`, from the environment's info
        of the last turn, or else of the reset; `images`, those of the last prompt, uint8[H, W, 3]
        each; `shown`, the text of the last message, with `<image>` for each image;
        `instructions`, the system message; `chat_prompt`, both in the format of the model's chat
        template; `chat_text`, that with the last reply and its end token; `chat_messages`, the
        whole conversation as `{role, content}`, and `screens`, an image for each `<image>` that it
        has outside of replies; `env_rewards`, one per turn; `info`, of the last turn;
        `data_source`, the environment's id. If the question is from a data set, also every column
        of its row under its own name; a column `data_source` replaces the environment's id.
    """
    last = episode.turns[-1]
    source = next((i for i in (last.info, episode.reset_info) if "ground_truth" in i), {})
    images = list(last.images)
    row = dict(episode.reset_info.get(ROW) or {})
    if (column := episode.reset_info.get(IMAGE_COLUMN)) in row:
        row[column] = images if isinstance(row[column], list) else next(iter(images), None)
    inputs = {
        "data_source": episode.env_id,
        **row,
        "response": last.reply,
        "responses": [turn.reply for turn in episode.turns],
        "response_length": len(last.reply_ids),
        "response_ids": list(last.reply_ids),
        "ground_truth": source.get("ground_truth"),
        "images": images,
        "shown": last.shown,
        "instructions": episode.instructions,
        **_whole_conversation(episode),
        "env_rewards": env_reward(episode),
        "info": dict(last.info),
    }
    prompt, text = openrlhf.texts_of({k: inputs[k] for k in _TEXTS}, form)
    return inputs | {"chat_prompt": prompt, "chat_text": text}


def _whole_conversation(episode: Episode) -> dict[str, list[Any]]:
    messages, screens = [], list[Image]()
    if episode.instructions:
        messages.append({"role": "system", "content": episode.instructions})
    for turn in episode.turns:
        count = turn.shown.count(IMAGE)
        screens += turn.images[len(turn.images) - count :]
        messages.append({"role": "user", "content": turn.shown})
        messages.append({"role": "assistant", "content": turn.reply})
    return {"chat_messages": messages, "screens": screens}


class BatchReward:
    """Calls a batch function with the episodes that arrived while it was busy.

    The function is never called concurrently. No episode waits for a batch to fill: the first one
    is scored at once, and those that end meanwhile are scored together.

    Args:
        name: for messages.
        function: takes a list of inputs and returns a row for each.
        deadline_s: for one episode, from its arrival. A call that takes longer is abandoned and
            does not delay others.
        max_batch_size: maximum number of episodes per call.
    """

    def __init__(
        self,
        name: str,
        function: BatchFunction,
        deadline_s: float,
        max_batch_size: int = _MAX_BATCH_SIZE,
    ) -> None:
        self._name, self._function, self._deadline_s = name, function, deadline_s
        self._max_batch_size = max_batch_size
        self._lock = threading.Lock()
        self._waiting: list[tuple[RewardInputs, Future[RewardRow]]] = []
        self._thread: threading.Thread | None = None

    def score(self, inputs: RewardInputs) -> RewardRow:
        """The function's scores of one episode.

        Raises:
            RewardError: it raised, took too long, or returned something other than a row.
        """
        answer: Future[RewardRow] = Future()
        with self._lock:
            self._waiting.append((inputs, answer))
            if self._thread is None:
                self._start()
        try:
            return answer.result(self._deadline_s)
        except TimeoutError:
            with self._lock:
                self._abandon(answer)
            raise RewardError(f"{self._name}: no result within {self._deadline_s:g} s") from None

    def _start(self) -> None:
        # A daemon thread, unlike an executor's: if it hangs, the process can still exit.
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def _abandon(self, mine: Future[RewardRow]) -> None:
        self._waiting = [(inputs, answer) for inputs, answer in self._waiting if answer is not mine]
        self._thread = None
        if self._waiting:
            self._start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return  # abandoned: another thread has taken over
                size = self._max_batch_size
                batch, self._waiting = self._waiting[:size], self._waiting[size:]
                if not batch:
                    self._thread = None
                    return
            self._score_batch(batch)

    def _score_batch(self, batch: Sequence[tuple[RewardInputs, "Future[RewardRow]"]]) -> None:
        try:
            rows = score_batch(self._name, self._function, [inputs for inputs, _ in batch])
        except AgentRLError as error:
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), row in zip(batch, rows, strict=True):
            if isinstance(row, RewardError):
                answer.set_exception(row)
            else:
                answer.set_result(row)


def max_batch_size(function: Any) -> int:
    """Maximum number of episodes per call, which a function limits by an attribute of that name.

    Raises:
        ConfigError: it is not a whole number of at least 1.
    """
    # `most` is its old name.
    size = getattr(function, "max_batch_size", getattr(function, "most", _MAX_BATCH_SIZE))
    if type(size) is not int or size < 1:
        raise ConfigError(f"max_batch_size={size!r} must be a whole number, 1 or more")
    return size


def score_batch(
    name: str, function: BatchFunction, inputs: list[RewardInputs]
) -> list[RewardRow | RewardError]:
    """A batch function's row for each episode, or its error.

    If the function fails for a batch, it is called again for each episode alone, so that one bad
    episode does not affect the others.

    Args:
        name: name of the function, for messages.
        function: is called with the inputs.
        inputs: one for each episode.

    Raises:
        AgentRLError: the function raised it deliberately; it applies to all episodes.
    """
    try:
        rows: Any = awaited(function(inputs))
        if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
            raise TypeError(f"returned {type(rows).__name__}, not a list of dictionaries")
        if len(rows) != len(inputs):
            raise ValueError(f"returned {len(rows)} rows for {len(inputs)} episodes")
    except AgentRLError:
        raise
    except BaseException as error:  # in our own thread, where it would otherwise be lost
        if len(inputs) == 1:
            return [RewardError(f"{name}: {describe_error(error)}")]
        return [row for episode in inputs for row in score_batch(name, function, [episode])]
    return [_check_row(name, row) for row in rows]


def _check_row(name: str, row: Any) -> RewardRow | RewardError:
    try:
        if isinstance(row, Mapping) and row.keys() == {"error"}:
            return RewardError(f"{name}: {str(row['error'])[:500]}")
        return _to_floats(row)
    except BaseException as error:  # a user's function may return anything
        return RewardError(f"{name}: {describe_error(error)}")


def _to_floats(row: Any) -> RewardRow:
    """A row as plain numbers.

    Raises:
        TypeError, ValueError: it is not a dictionary, has no `overall` although it is not empty, or
            has a value that is not a finite number.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is {type(row).__name__}, not a dictionary")
    if not row:
        return {}
    if OVERALL not in row:
        raise ValueError(f"a row has no {OVERALL!r}; it has {sorted(map(str, row))[:8]}")
    numbers = {str(name): finite(repr(str(name)), value) for name, value in row.items()}
    return {OVERALL: numbers.pop(OVERALL), **numbers}


def awaited(value: Any) -> Any:
    """What a function returned; awaited if the function is asynchronous."""
    return asyncio.run(_await(value)) if inspect.isawaitable(value) else value


async def _await(value: Any) -> Any:
    return await value


def finite(name: str, value: Any) -> float:
    """A value as a finite float.

    Args:
        name: name of the value, for messages.
        value: a number of any library, or an array or tensor of one number.

    Raises:
        TypeError, ValueError: it is not a number (such as the text "1.0"), or not finite.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = float(plain) if hasattr(plain, "__float__") else None  # texts and bytes have none
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    except (TypeError, ValueError, RuntimeError):  # torch raises the last one
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r:.60} ({type(value).__name__}), not a number")
    if not math.isfinite(number):
        raise ValueError(f"{name} is {value!r:.60}, not a finite number")
    return number
