"""Reward functions as other trainers have them.

`compute_score(reward_inputs)` takes several episodes at once, `compute_score(data_source,
solution_str, ground_truth, extra_info)` one answer.
"""

import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from numbers import Real
from typing import Any

from agentrl.data.reward_inputs import env_reward
from agentrl.errors import AgentRLError, RewardError, told
from agentrl.types import Episode

Inputs = dict[str, Any]
"""What a batch function is told of one episode; see `inputs_of`."""
Row = dict[str, float]
"""What it says of it: `overall`, and further components."""

BatchFunction = Callable[[list[Inputs]], Sequence[Mapping[str, Any]]]
OVERALL = "overall"
_MOST = 64
"""Episodes of one call, where the function has no `most` of its own."""


def inputs_of(episode: Episode) -> Inputs:
    """One episode as a batch function is given it.

    Returns:
        `response`, the last reply, and `responses`, all of them; `response_length`, the tokens of
        the last reply; `ground_truth`, as the environment's info of the last turn, or else of the
        first observation, names it; `images`, those that the last prompt showed, uint8[H, W, 3]
        each; `env_rewards`, one per turn; `info`, that of the last turn; `data_source`, the id of
        its environment.
    """
    last = episode.turns[-1]
    told_at = next((i for i in (last.info, episode.reset_info) if "ground_truth" in i), {})
    return {
        "response": last.reply,
        "responses": [turn.reply for turn in episode.turns],
        "response_length": len(last.reply_ids),
        "ground_truth": told_at.get("ground_truth"),
        "images": list(last.images),
        "env_rewards": env_reward(episode),
        "info": dict(last.info),
        "data_source": episode.env_id,
    }


def by_answer(function: Callable[..., Any]) -> BatchFunction:
    """A function of one answer, as veRL knows them, as one that takes several.

    Args:
        function: takes `data_source`, `solution_str` (the last reply) and `ground_truth`, and,
            where it wants it, `extra_info`: the info of the last turn, `num_turns` and
            `response_length`. Returns a number, or a dictionary with a `score`, of which other
            numbers are components.
    """
    names = inspect.signature(function).parameters
    wants_more = "extra_info" in names or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values()
    )

    def batch(inputs: list[Inputs]) -> list[dict[str, Any]]:
        return [_row_of(function, one, wants_more) for one in inputs]

    return batch


def _row_of(function: Callable[..., Any], one: Inputs, wants_more: bool) -> dict[str, Any]:
    told_beside = {"num_turns": len(one["responses"]), "response_length": one["response_length"]}
    more = {"extra_info": one["info"] | told_beside} if wants_more else {}
    found = function(one["data_source"], one["response"], one["ground_truth"], **more)
    if not isinstance(found, Mapping):
        return {OVERALL: found}
    if "score" not in found:
        raise ValueError(f"returned no 'score'; it has {sorted(map(str, found))[:8]}")
    beside = {
        name: value for name, value in found.items() if name != "score" and isinstance(value, Real)
    }
    return {OVERALL: found["score"], **beside}


class BatchReward:
    """Calls a batch function with the episodes that have come in while it was busy.

    It is never called twice at once. Nobody waits for a batch to fill: the first episode is scored
    at once, and those that end meanwhile are scored together.

    Args:
        name: for messages.
        function: takes a list of inputs, and returns a row for each; its attribute `most`, where
            it has one, is how many it is given at once.
        deadline_s: for one episode, from the time it comes in. A call that takes longer is given
            up, and does not hold up the others.
    """

    def __init__(self, name: str, function: BatchFunction, deadline_s: float) -> None:
        self._name, self._function, self._deadline_s = name, function, deadline_s
        self._most = int(getattr(function, "most", _MOST))
        self._lock = threading.Lock()
        self._waiting: list[tuple[Inputs, Future[Row]]] = []
        self._thread: threading.Thread | None = None

    def row(self, inputs: Inputs) -> Row:
        """What the function says of one episode.

        Raises:
            RewardError: it raised, took too long, or returned something that is no row.
        """
        answer: Future[Row] = Future()
        with self._lock:
            self._waiting.append((inputs, answer))
            if self._thread is None:
                self._start()
        try:
            return answer.result(self._deadline_s)
        except TimeoutError:
            with self._lock:
                self._give_up(answer)
            raise RewardError(f"{self._name}: nothing within {self._deadline_s:g} s") from None

    def _start(self) -> None:
        # A daemon, unlike an executor's: one that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def _give_up(self, mine: Future[Row]) -> None:
        self._waiting = [(inputs, answer) for inputs, answer in self._waiting if answer is not mine]
        self._thread = None
        if self._waiting:
            self._start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return  # given up, and another has taken over
                taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                if not taken:
                    self._thread = None
                    return
            self._answer(taken)

    def _answer(self, taken: Sequence[tuple[Inputs, "Future[Row]"]]) -> None:
        try:
            rows = rows_of(self._name, self._function, [inputs for inputs, _ in taken])
        except AgentRLError as error:
            for _, answer in taken:
                answer.set_exception(error)
            return
        for (_, answer), row in zip(taken, rows, strict=True):
            if isinstance(row, RewardError):
                answer.set_exception(row)
            else:
                answer.set_result(row)


def rows_of(name: str, function: BatchFunction, inputs: list[Inputs]) -> list[Row | RewardError]:
    """What a batch function says of some episodes: a row of each, or what is wrong with it.

    An episode pays for itself alone: where the function fails over several, it is asked again for
    each without the others.

    Args:
        name: of the function, for messages.
        function: is called with the inputs.
        inputs: one for each episode.

    Raises:
        AgentRLError: raised by the function on purpose, and so about all of them.
    """
    try:
        found: Any = function(inputs)
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise TypeError(f"returned {type(found).__name__}, not a list of dictionaries")
        if len(found) != len(inputs):
            raise ValueError(f"returned {len(found)} rows for {len(inputs)} episodes")
    except AgentRLError:
        raise
    except BaseException as error:  # in a thread of ours: nobody else would hear of it
        if len(inputs) == 1:
            return [RewardError(f"{name}: {told(error)}")]
        return [row for one in inputs for row in rows_of(name, function, [one])]
    return [_checked(name, row) for row in found]


def _checked(name: str, row: Any) -> Row | RewardError:
    try:
        if isinstance(row, Mapping) and row.keys() == {"error"}:
            return RewardError(f"{name}: {str(row['error'])[:500]}")
        return _plain(row)
    except BaseException as error:  # as above: a row may be anything
        return RewardError(f"{name}: {told(error)}")


def _plain(row: Any) -> Row:
    """A row as plain numbers.

    Raises:
        TypeError, ValueError: it is no dictionary, has no `overall`, or holds what is no number.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is {type(row).__name__}, not a dictionary")
    if OVERALL not in row:
        raise ValueError(f"a row has no {OVERALL!r}; it has {sorted(map(str, row))[:8]}")
    numbers = {str(name): finite(repr(str(name)), value) for name, value in row.items()}
    return {OVERALL: numbers.pop(OVERALL), **numbers}


def finite(name: str, value: Any) -> float:
    """A value as a number.

    Args:
        name: of the value, for messages.
        value: a number of any library.

    Raises:
        TypeError, ValueError: it is none, or none that is finite.
    """
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r:.60}, not a number") from None
    if isinstance(value, str | bytes | bytearray) or not math.isfinite(number):
        raise ValueError(f"{name} is {value!r:.60}, not a finite number")
    return number
