"""Reward functions with the signatures of other trainers, as batch functions.

| kind | from | signature |
|---|---|---|
| `batch` | EasyR1 | `(reward_inputs: list[dict]) -> list[dict]` with `overall` |
| `sequential` | EasyR1 | `(reward_input: dict) -> dict` with `overall` |
| `answer` | veRL | `(data_source, solution_str, ground_truth, extra_info)` -> score or dict |
| `answers` | veRL, in batches | the same with an `s` after each name -> list of scores or dicts |
| `completions` | TRL | `(prompts, completions, **columns) -> list[float or None]` |
| `queries` | OpenRLHF | `(queries, prompts, labels) -> dict` with `rewards` |

`SIGNATURES`, at the end, defines how each is recognized and called.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from agentrl.data import openrlhf_reward_protocol
from agentrl.errors import ConfigError
from agentrl.rollout.rewards.lazy_episode_transfer import Fetched, FirstItem, Joined
from agentrl.rollout.rewards.reward_calls import (
    INPUT_NAMES,
    OVERALL,
    BatchFunction,
    RewardInputs,
    RewardSpec,
    awaited,
)
from agentrl.text.name_suggestions import known_names
from agentrl.types import IMAGE

_ANY_NAME = inspect.Parameter.VAR_KEYWORD
_WITHOUT_COLUMNS = (*INPUT_NAMES, "prompts", "completions", "completion_ids")
"""Arguments that TRL passes to reward functions by name regardless of the columns."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Signature:
    """How another trainer calls its reward functions."""

    first: str
    """Name of the first parameter that implies this signature."""
    adapt: Callable[[Callable[..., Any]], BatchFunction]
    """Converts a function, which may be asynchronous, to a batch function."""
    implied_by: Sequence[frozenset[str]] = ()
    """Sets of parameter names; all names of a set, in any position, also imply this signature."""
    by_name: bool = False
    """Whether all arguments are passed by name, even to functions without the names above."""
    num_positional: int = 1
    """Number of arguments passed by position to a function without the names above."""
    for_one: bool = False
    """Whether a call scores a single episode."""
    has_answer: bool = False
    """Whether the arguments always include the right answer."""

    def is_named_in(self, names: Collection[str]) -> bool:
        """Return whether a function's parameter names, in any position, imply this signature."""
        return any(one <= {*names} for one in self.implied_by)


def is_factory(function: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a function makes a reward function, like TRL's `get_soft_overlong_punishment`.

    True if the kwargs bind all its parameters, so that none is left for an episode.
    """
    if not inspect.isroutine(function):
        return False
    try:
        signature = inspect.signature(function)
        signature.bind(**kwargs)
    # The signatures of C functions may be unknown.
    except (TypeError, ValueError):
        return False
    first = next(iter(signature.parameters), "")
    kinds = [p.kind for p in signature.parameters.values()]
    takes_any = inspect.Parameter.VAR_POSITIONAL in kinds or kinds == [_ANY_NAME]
    of_reward = ("episode", "completion_ids", *(one.first for one in SIGNATURES.values()))
    return not takes_any and first not in of_reward


def detect_kind(config: RewardSpec, function: Any) -> str:
    """Return a function's kind: as configured, declared by its file, or implied by parameter names.

    Raises:
        ConfigError: `REWARD_TYPE` is neither `batch` nor `sequential`.
    """
    if config.kind != "auto" or not callable(function):
        return config.kind
    if (declared := _constant(function, "REWARD_TYPE")) is not None:
        if declared not in ("batch", "sequential"):
            raise ConfigError(
                f"rewards: {config.function}: REWARD_TYPE={declared!r} must be batch or sequential"
            )
        return str(declared)
    names = list(inspect.signature(function).parameters)
    by_first = (kind for kind, one in SIGNATURES.items() if names[:1] == [one.first])
    # Check the most specific signatures, which come last, first: TRL passes everything by name,
    # regardless of the columns.
    anywhere = (kind for kind, one in reversed(SIGNATURES.items()) if one.is_named_in(names))
    return next(by_first, None) or next(anywhere, "episode")


def declared_name(function: Any) -> str | None:
    """Return `REWARD_NAME` of the file that defines a function, if it has one."""
    name = _constant(function, "REWARD_NAME")
    return name if isinstance(name, str) and name else None


def _constant(function: Any, name: str) -> Any:
    kind = function if hasattr(function, "__qualname__") else type(function)
    return getattr(sys.modules.get(kind.__module__), name, None)


def check_signature(spec: RewardSpec, function: Any, kind: str) -> None:
    """Check that a function can be called with the arguments of its kind and its own kwargs.

    Raises:
        ConfigError: the function cannot be called this way.
    """
    signature, parameters = SIGNATURES.get(kind), inspect.signature(function)
    try:
        if signature and (signature.by_name or signature.is_named_in(parameters.parameters)):
            # The data set's columns provide the other arguments.
            parameters.bind_partial(**spec.kwargs)
        else:
            count = 1 if signature is None else signature.num_positional
            parameters.bind(*(None,) * count, **spec.kwargs)
    except TypeError as error:
        raise wrong_arguments(spec, error) from None


def wrong_arguments(spec: RewardSpec, error: Exception) -> ConfigError:
    """Return the error for a function that does not accept its kwargs."""
    *firsts, last = ["an episode", *(one.first for one in SIGNATURES.values())]
    return ConfigError(
        f"rewards: {spec.function} does not accept its kwargs: {error} (the first parameter of a "
        f"reward function is {', '.join(firsts)} or {last})"
    )


def _batch(function: Callable[..., Any]) -> BatchFunction:
    return lambda inputs: function([_with_images(one) for one in inputs])


def _sequential(function: Callable[..., Any]) -> BatchFunction:
    return lambda inputs: [awaited(function(_with_images(one))) for one in inputs]


def _with_images(inputs: RewardInputs) -> RewardInputs:
    """Load the image of each input that contains one."""
    images = {name: one.load() for name, one in inputs.items() if isinstance(one, FirstItem)}
    return {**inputs, **images} if images else inputs


def _answer(function: Callable[..., Any]) -> BatchFunction:
    call = _verl_call(function, SIGNATURES["answer"])
    return lambda inputs: [_score_row(call(_verl_arguments(one))) for one in inputs]


def _answers(function: Callable[..., Any]) -> BatchFunction:
    call = _verl_call(function, SIGNATURES["answers"])

    def batch(inputs: list[RewardInputs]) -> list[dict[str, Any]]:
        rows = [_verl_arguments(one) for one in inputs]
        given = {f"{name}s": [row[name] for row in rows] for name in rows[0]}
        return [_score_row(score) for score in call(given)]

    return batch


def _verl_arguments(inputs: RewardInputs) -> dict[str, Any]:
    own = inputs.get("extra_info")
    counts = {"num_turns": len(inputs["responses"]), "response_length": inputs["response_length"]}
    return {
        "data_source": inputs["data_source"],
        "solution_str": inputs["response"],
        "ground_truth": inputs["ground_truth"],
        "extra_info": {**inputs["info"], **(own if isinstance(own, Mapping) else {}), **counts},
    }


def _verl_call(
    function: Callable[..., Any], signature: Signature
) -> Callable[[dict[str, Any]], Any]:
    """Return a function that passes veRL's arguments, by name if the parameters match."""
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    num_positional = 0 if signature.is_named_in(parameters) else signature.num_positional

    def call(given: dict[str, Any]) -> Any:
        named = [name for name in [*given][num_positional:] if name in parameters or takes_any]
        first = [*given.values()][:num_positional]
        return awaited(function(*first, **{name: given[name] for name in named}))

    return call


def _score_row(result: Any) -> dict[str, Any]:
    """Convert veRL's score of one answer to a row."""
    if not isinstance(result, Mapping):
        return {OVERALL: result}
    if "score" not in result:
        raise ValueError(f"returned no 'score'; it has {sorted(map(str, result))[:8]}")
    parts = {k: v for k, v in result.items() if k != "score" and isinstance(v, Real)}
    return {OVERALL: result["score"], **parts}


def _completions(function: Callable[..., Any]) -> BatchFunction:
    # A partial's keywords are the configured kwargs.
    bound = getattr(function, "keywords", {})
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in bound]
    required = required_columns("completions", function)
    own = getattr(function, "func", function)
    name = getattr(own, "__name__", type(own).__name__)

    def batch(inputs: list[RewardInputs]) -> list[dict[str, Any]]:
        given = _columns(inputs)
        check_columns(name, required, given)
        chosen = {
            name: _for_trl(values)
            for name, values in given.items()
            if name in names or (takes_any and name not in bound)
        }
        rewards = list(awaited(function(**chosen)))
        return [{} if reward is None else {OVERALL: reward} for reward in rewards]

    return batch


def required_columns(kind: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the data set columns that a function requires."""
    if kind != "completions":
        return ()
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.default is parameter.empty
        and name not in _WITHOUT_COLUMNS
    )


def check_columns(name: str, required: Iterable[str], given: Collection[str]) -> None:
    """Check that a function gets the columns that it requires.

    Raises:
        ConfigError: a required column does not exist.
    """
    # TRL passes the column `prompt` as `prompts`.
    known = {*given, *_WITHOUT_COLUMNS} - {"prompt"}
    for column in required:
        if column not in known:
            raise ConfigError(
                f"rewards: {name} requires the column {column!r}, which does not exist"
                f"{known_names(column, sorted(known))}"
            )


def _columns(inputs: list[RewardInputs]) -> dict[str, list[Any]]:
    """Return the arguments for TRL's reward functions, as lists with one entry per episode."""
    names = dict.fromkeys(name for one in inputs for name in one if name != "prompt")
    columns = {name: [one.get(name) for one in inputs] for name in names}
    # As in TRL, a completion is text if the row's `prompt` is text, else a one-message list.
    completions = [
        one["response"]
        if isinstance(one.get("prompt"), str)
        else [{"role": "assistant", "content": one["response"]}]
        for one in inputs
    ]
    return columns | {
        "prompts": [one.get("prompt") or _prompt(one) for one in inputs],
        "completions": completions,
        "completion_ids": [one["response_ids"] for one in inputs],
    }


class _ImageColumn(Sequence[Any]):
    """A column of PIL images; a row's images are fetched when the row is read."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        found = self._values[index]
        return [*map(_as_pil, found)] if isinstance(index, slice) else _as_pil(found)


def _for_trl(values: list[Any]) -> Sequence[Any]:
    """Convert images to PIL images; leave everything else unchanged."""
    return _ImageColumn(values) if any(map(_is_image, values)) else values


def _is_image(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return getattr(first, "ndim", 0) == 3 or isinstance(value, FirstItem | Fetched | Joined)


def _as_pil(value: Any) -> Any:
    from PIL import Image

    if isinstance(value, FirstItem):
        value = value.load()
    if isinstance(value, list | Fetched | Joined):
        return [_as_pil(image) for image in value]
    return Image.fromarray(value) if getattr(value, "ndim", 0) == 3 else value


def _prompt(inputs: RewardInputs) -> list[dict[str, Any]]:
    """Return the last message, preceded by any messages before the first turn."""
    said, turns = inputs.get("chat_messages") or (), len(inputs["responses"])
    earlier = said[: -2 * turns]
    if all(message["role"] == "system" for message in earlier):
        earlier = ()
    return [
        *(_with_parts(message["role"], message["content"]) for message in earlier),
        _with_parts("user", inputs["shown"]),
    ]


def _with_parts(role: str, text: str) -> dict[str, Any]:
    """Return a message, with a part for each image if there are any."""
    first, *rest = text.split(IMAGE) if role != "assistant" else [text]
    parts: list[dict[str, Any]] = [{"type": "text", "text": first}] if first.strip() else []
    for piece in rest:
        parts.append({"type": "image"})
        if piece.strip():
            parts.append({"type": "text", "text": piece})
    return {"role": role, "content": parts if rest else text}


def _queries(function: Callable[..., Any]) -> BatchFunction:
    def batch(inputs: list[RewardInputs]) -> list[dict[str, Any]]:
        request = openrlhf_reward_protocol.request_of(inputs)
        result = awaited(function(request["query"], request["prompts"], request["labels"]))
        held = result if isinstance(result, Mapping) else {"rewards": result}
        return openrlhf_reward_protocol.rows_of(
            {k: _plain(v) for k, v in held.items()}, len(inputs)
        )

    return batch


def _plain(value: Any) -> Any:
    """Return a tensor as a list or a number."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


SIGNATURES: dict[str, Signature] = {
    "batch": Signature(first="reward_inputs", adapt=_batch, has_answer=True),
    "sequential": Signature(first="reward_input", adapt=_sequential, for_one=True, has_answer=True),
    "answer": Signature(
        first="data_source",
        adapt=_answer,
        implied_by=[frozenset({"solution_str", "ground_truth"})],
        num_positional=3,
        for_one=True,
        has_answer=True,
    ),
    "answers": Signature(
        first="data_sources",
        adapt=_answers,
        implied_by=[frozenset({"solution_strs", "ground_truths"})],
        num_positional=4,
        has_answer=True,
    ),
    "completions": Signature(
        first="completions",
        adapt=_completions,
        implied_by=[frozenset({"completions"}), frozenset({"completion_ids"})],
        by_name=True,
    ),
    "queries": Signature(first="queries", adapt=_queries, by_name=True),
}
"""Signatures by kind."""
