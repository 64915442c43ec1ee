"""The individual checks of an environment; each returns one finding."""

import json
import math
import os
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from multiprocessing import get_context
from threading import Thread
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from agentrl.actions.action_chunks import read_actions
from agentrl.actions.players.noop_player import NOOP
from agentrl.actions.players.player import scripted_reply
from agentrl.check.environments.side_effects import FirstInstance
from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.check.support.open_env import open_env
from agentrl.check.support.random_episodes import (
    SEED,
    RandomEpisode,
    difference,
    equal_values,
    first_observations,
    play_randomly,
)
from agentrl.config import EnvConfig
from agentrl.config.env_settings import EACH
from agentrl.data.observation_conversion import observation_problem
from agentrl.errors import ActionError, AgentRLError, describe_error
from agentrl.rollout.environments.env_calls import reset_env, step_env
from agentrl.rollout.environments.env_processes import resident_bytes
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.text.formatting import pluralize, quoted
from agentrl.types import Image

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FUZZ = 2000
_MERGED = 28
"""Side in pixels of the square that Qwen2.5-VL merges into one token."""
_MANY_TOKENS = 2000
_LONG_TEXT = 20_000
_SLOW_MS = 1000.0

_READ = ("state_key", "metrics", "phase")
"""Keys of `info` that agentrl reads."""
_MEMORY_S = 2.0
_FEWEST_EPISODES, _MOST_EPISODES = 3, 40
"""Memory growth is measured over two halves, so at least two episodes follow the first, however
long they take."""
_GROWTH_BYTES = 500_000
"""Memory growth per episode, in bytes, that is reported as a leak if it does not stop."""
_WRAPPED = "different from the unwrapped version"
"""Part of Gymnasium's warning about wrappers, ignored because wrappers are checked on purpose."""

PlayTwice = Callable[[], tuple[RandomEpisode, RandomEpisode]]
"""Plays the same episode twice; the result is cached."""


def check_creation(config: EnvConfig, first: Callable[[], FirstInstance]) -> Finding:
    """The environment exists, takes its arguments and can be constructed."""
    resolve_env(config).check_arguments()
    try:
        made = first().made.result()
    except AgentRLError:
        raise
    except Exception as error:
        if not config.kwargs:
            raise
        taken = resolve_env(config).parameters
        return wrong(
            "construction",
            f"with env.kwargs={config.kwargs}: {_short(describe_error(error))}",
            "correct env.kwargs, or the constructor; the environment takes "
            f"{', '.join(taken) or 'no arguments'}",
        )
    kind = type(made.unwrapped).__name__
    spaces = f"actions {made.action_space}, observations {_short(made.observation_space)}"
    return ok("construction", f"{kind}: {spaces}")


def check_gymnasium(config: EnvConfig) -> Finding:
    """Gymnasium's own checker passes, with the wrappers of the configuration."""
    with open_env(config) as env, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # The render check would create a new environment for every render mode.
            check_env(_WithoutInfo(env), skip_render_check=True)
        except Exception as error:
            message = _short(_old_gym(env) or describe_error(error), 300)
            return wrong("gymnasium's checker", message, "see gymnasium.Env's documentation")
    texts = [_short(str(warning.message)) for warning in caught]
    messages = [text for text in texts if _WRAPPED not in text]
    if messages:
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        return note("gymnasium's checker", messages[0] + more, "see gymnasium.Env's documentation")
    return ok("gymnasium's checker", "passes")


def _old_gym(env: "gymnasium.Env[Any, Any]") -> str | None:
    """Return the error of an environment with old Gym's interface."""
    try:
        reset_env(env, SEED)
        step_env(env, env.action_space.sample())
    except TypeError as error:
        return str(error)
    except Exception:
        # Gymnasium's checker has a better message for any other exception.
        return None
    return None


class _WithoutInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that drops `info`, which may contain timings; `check_info` checks it."""

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)

        # Gymnasium inspects the signature, which must be the environment's own.
        @wraps(env.unwrapped.reset)
        def reset(**given: Any) -> Any:
            return self._stripped(env.reset(**given))

        self.reset = reset  # type: ignore[method-assign]

    def step(self, action: Any) -> Any:
        """See gymnasium.Env.step."""
        return self._stripped(self.env.step(action))

    def _stripped(self, found: Any) -> Any:
        has_info = isinstance(found, tuple) and found and isinstance(found[-1], dict)
        return (*found[:-1], {}) if has_info else found

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """The environment's own spec, because no spec can create this wrapper."""
        return self.env.unwrapped.spec


def check_observations(play_twice: PlayTwice) -> Finding:
    """Each played observation is in the observation space, wrappers included."""
    what, (played, _) = "observations", play_twice()
    for step, seen in enumerate(played.observations):
        where = f"the observation after {pluralize(step, 'step')}"
        problem = observation_problem(played.space, seen, where)
        if problem is None and not played.space.contains(seen):
            problem = f"{where} is not in {_short(played.space)}: {_short(repr(seen), 60)}"
        if problem:
            fix = "correct the observation, or the observation_space of the environment or wrapper"
            return wrong(what, problem, fix)
    return ok(what, f"all {len(played.observations)} are in the observation space")


def check_memory(config: EnvConfig, steps: int) -> Finding:
    """Memory does not keep growing when the environment is played repeatedly."""
    what, end = "memory", time.monotonic() + _MEMORY_S
    sizes: list[int] = []
    with open_env(config) as env:
        while len(sizes) < _MOST_EPISODES and (
            time.monotonic() < end or len(sizes) < _FEWEST_EPISODES
        ):
            reset_env(env, SEED + len(sizes))
            for _ in range(steps):
                _, _, terminated, truncated, _ = step_env(env, env.action_space.sample())
                if terminated or truncated:
                    break
            sizes.append(resident_bytes(os.getpid()))
    # Caches fill up in the first half; a leak continues in the second.
    half, last = len(sizes) // 2, len(sizes) - 1
    early = (sizes[half] - sizes[0]) / half
    late = (sizes[last] - sizes[half]) / (last - half)
    if min(early, late) > _GROWTH_BYTES:
        grown = f"grows by {late / 1e6:.1f} MB per episode in {len(sizes)} episodes"
        return note(what, grown, "free an episode's data on reset; env.processes=1 logs a warning")
    return ok(what, f"does not grow in {len(sizes)} episodes")


def check_seeds(config: EnvConfig, play_twice: PlayTwice, budget_s: float) -> Finding:
    """Equal seeds give equal episodes, and different seeds different ones."""
    one, other = play_twice()
    if place := difference(one, other):
        text = f"two episodes with seed {SEED} differ {place}"
        return wrong("seeds", text, "draw all random numbers from self.np_random")
    starts = first_observations(config, range(SEED, SEED + 4), time.monotonic() + budget_s)
    if all(equal_values(starts[0], start) for start in starts[1:]):
        text = f"{len(starts)} seeds have the same first observation"
        return note("seeds", text, "none needed if that is intended")
    steps = pluralize(len(one.rewards), "step")
    return ok("seeds", f"equal seeds give equal episodes ({steps}), different seeds do not")


def check_info(config: EnvConfig, play_twice: PlayTwice) -> Finding:
    """Info is plain data, deterministic, and has a `state_key`."""
    one, other = play_twice()
    for place, (a, b) in enumerate(zip(one.infos, other.infos, strict=False)):
        # Recordings store info as JSON.
        json.dumps(a, default=_plain)
        differs = [k for k in a if k in b and not equal_values(a[k], b[k])]
        if read := [k for k in differs if k in _READ]:
            what = f"{read[0]!r} differs at step {place} of two episodes with seed {SEED}"
            return wrong("info", what, "make it depend only on the seed and the actions")
        if differs:
            text = f"{differs[0]!r} differs at step {place}"
            return note("info", text, "none needed if it is a time or an id")
    keys = sorted(one.infos[-1])
    known = [key for key in _READ if key in keys]
    if "state_key" not in known and config.state_key == "info":
        return note(
            "info",
            f"it has no state_key (its keys: {', '.join(keys) or 'none'})",
            "none needed to compare whole episodes; to compare turns in the same state, add "
            "state_key, or set env.state_key=observation or screen",
        )
    return ok("info", f"{', '.join(known) or 'the state key is taken from the observation'}")


def check_reset(config: EnvConfig, budget_s: float) -> Finding:
    """The environment can be reset after an episode ends."""
    what, step = "reset after episode", 0
    with open_env(config) as env:
        env.action_space.seed(SEED)
        reset_env(env, SEED)
        end = time.monotonic() + budget_s
        while step < config.max_turns and time.monotonic() < end:
            step += 1
            _, reward, terminated, truncated, _ = step_env(env, env.action_space.sample())
            # float() would also accept a string.
            if isinstance(reward, str) or not math.isfinite(float(reward)):
                text = f"reward {reward!r} at step {step}"
                return wrong(what, text, "return a finite number as the reward")
            if terminated or truncated:
                env.reset(seed=SEED + 1)
                env.step(env.action_space.sample())
                return ok(what, f"works; a random episode took {step} steps")
    if step < config.max_turns:
        text = f"not checked: no random episode ended within {step} steps in {budget_s:.0f} s"
        return note(what, text, "raise --deadline, since this check plays for a quarter of it")
    return note(
        what,
        f"not checked: no random episode ended within env.max_turns={config.max_turns}",
        "none needed if episodes are that long; they are truncated at env.max_turns",
    )


def check_speed(play_twice: PlayTwice) -> Finding:
    """Report the duration of a reset and a step."""
    played, _ = play_twice()
    if not played.step_ms:
        return wrong("speed", "the episode had no steps", "an episode must have at least one step")
    median, worst = float(np.median(played.step_ms)), max(played.step_ms)
    detail = (
        f"constructor {played.made_ms:.2f} ms, reset {played.reset_ms:.2f} ms, step {median:.2f} "
        f"ms, slowest step {worst:.2f} ms"
    )
    if worst > _SLOW_MS:
        return note("speed", detail, "speed it up, or raise rollout.concurrency to hide the wait")
    return ok("speed", detail)


def check_observation(play_twice: PlayTwice) -> Finding:
    """Report the size of the model's input, in pixels, tokens and characters."""
    views = play_twice()[0].translated
    sizes = {image.shape[:2] for view in views for image in view.images}
    images = ", ".join(f"{width}x{height}" for height, width in sorted(sizes))
    tokens = max(sum(_tokens(image) for image in view.images) for view in views)
    longest = max(len(view.text) for view in views)
    pictures = f"images {images} ({tokens} tokens for Qwen2.5-VL)" if images else "no images"
    detail = f"{pictures}, longest text {pluralize(longest, 'character')}"
    if not tokens and not longest:
        return wrong("shown to the model", "nothing", "the translator must return an image or text")
    if tokens > _MANY_TOKENS:
        return note("shown to the model", detail, "lower model.max_pixels or model.image_size")
    if longest > _LONG_TEXT:
        return note("shown to the model", detail, "shorten the text: env.translator_kwargs.text")
    return ok("shown to the model", detail)


def check_instructions(config: EnvConfig) -> Finding:
    """The translator has instructions."""
    text = open_translator(resolve_env(config)).instructions()
    if not text:
        return note("instructions", "none", "none needed for a model trained on this environment")
    return ok("instructions", _short(text, 100))


def check_replies(config: EnvConfig) -> Finding:
    """Any reply is either an action of the action space or an ActionError."""
    translator, rng = open_translator(resolve_env(config)), np.random.default_rng(SEED)
    space, known = space_and_replies(config, rng)
    actions, worst, loose = 0, 0.0, None
    for reply in _fuzz(known, rng):
        started = time.perf_counter()
        try:
            found = read_actions(translator, reply, config.max_actions_per_reply)
        except ActionError:
            continue
        except Exception as error:
            return wrong(
                "replies",
                f"{quoted(reply, 60)}: {describe_error(error)}",
                "to_action must raise ActionError for an invalid reply",
            )
        finally:
            worst = max(worst, time.perf_counter() - started)
        for action in found:
            if not is_action(space, action):
                text = f"{quoted(reply, 60)} became {action!r}"
                return wrong("replies", text, f"actions must be in {space}")
            if isinstance(space, gymnasium.spaces.Box) and not isinstance(action, np.ndarray):
                loose = action
        actions += 1
    if loose is not None:
        return note(
            "replies",
            f"to_action returned {_short(loose, 60)}, a {type(loose).__name__}, but actions of "
            f"{space} are arrays",
            f"return np.array(..., np.{space.dtype})",
        )
    return ok(
        "replies",
        f"{actions} of {_FUZZ:,} random replies are actions, the rest are rejected; the slowest "
        f"took {1000 * worst:.1f} ms",
    )


def space_and_replies(
    config: EnvConfig, rng: np.random.Generator
) -> "tuple[gymnasium.Space[Any], list[str]]":
    """Return the action space and the first reply of each of the environment's players but `noop`.

    The reply of `noop` need not contain an action.
    """
    resolved = resolve_env(config)
    with open_env(config) as env:
        space, start = env.action_space, env.reset(seed=SEED)
    players = [load_player(resolved, name) for name in resolved.players if name != NOOP]
    return space, [scripted_reply(player, *start, rng) for player in players]


def is_action(space: "gymnasium.Space[Any]", action: Any) -> bool:
    """Return whether a space contains an action."""
    # Convert numbers here, because Gymnasium would warn about converting them.
    if isinstance(space, gymnasium.spaces.Box) and isinstance(action, list | tuple | float | int):
        try:
            action = np.asarray(action, dtype=space.dtype)
        except (ValueError, TypeError, OverflowError):
            return False
    return bool(space.contains(action))


def check_instances(config: EnvConfig, steps: int) -> Finding:
    """Several instances in threads of one process do not affect each other."""
    if config.processes == EACH:
        detail = f"not checked: each runs in a process of its own (env.processes={EACH})"
        return ok("two instances", detail)
    alone = play_randomly(config, steps)
    runs: list[RandomEpisode] = []
    threads = [Thread(target=lambda: runs.append(play_randomly(config, steps))) for _ in range(2)]
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()
    # A thread that raised an exception has no run.
    if len(runs) < len(threads) or any(difference(alone, run) for run in runs):
        fix = f"instances must not share state; otherwise set env.processes={EACH}"
        return wrong("two instances", "two at once differ from one alone", fix)
    return ok("two instances", "two in threads behave like one alone")


def check_other_process(config: EnvConfig, steps: int, deadline_s: float) -> Finding:
    """The configuration can be pickled, and another process gives the same episode."""
    # `Process` would fail as well, but with a message about its internals.
    pickle.dumps(config)
    context = get_context("spawn")
    what, named = "another process", "env.id must be module:Name or path/file.py:Name"
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_play_and_send, args=(config, steps, sender), daemon=True)
    child.start()
    # While this end is open, `recv` would not notice the child's death.
    sender.close()
    try:
        if not receiver.poll(deadline_s):
            return wrong(what, f"not finished within {deadline_s:g} s", "no call may block forever")
        played = receiver.recv()
    except EOFError:
        return wrong(what, "cannot be constructed", named)
    finally:
        child.kill()
        child.join()
    if isinstance(played, str):
        return wrong(what, played, f"{named}, and its module must be importable on its own")
    if place := difference(play_randomly(config, steps), played):
        fix = "seed all random numbers; note that hash() differs between processes"
        return wrong(what, f"differs {place}", fix)
    return ok(what, "gives the same episode")


def _play_and_send(config: EnvConfig, steps: int, answer: Any) -> None:
    try:
        answer.send(play_randomly(config, steps))
    except Exception as error:
        answer.send(describe_error(error))


def check_player(config: EnvConfig, name: str, budget_s: float = math.inf) -> Finding:
    """A scripted player's replies are valid actions, and its episode ends."""
    what = f"player {name}"
    translator, player = (
        open_translator(resolve_env(config)),
        load_player(resolve_env(config), name),
    )
    # Don't use the environment's seed, so that a player can't predict the environment's draws.
    rng, total = np.random.default_rng([SEED, 1]), 0.0
    with open_env(config, getattr(translator, "render_mode", None)) as env:
        observation, info = env.reset(seed=SEED)
        end = time.monotonic() + budget_s
        for step in range(1, config.max_turns + 1):
            if step > 1 and time.monotonic() > end:
                text = f"valid actions for {step - 1} steps in {budget_s:.0f} s, return {total:g}"
                return note(what, text, "raise --deadline to play the whole episode")
            reply = scripted_reply(player, observation, info, rng)
            try:
                actions = read_actions(translator, reply, config.max_actions_per_reply)
            except ActionError as error:
                text = f"replied {quoted(reply, 60)}: {error}"
                return wrong(what, text, "reply in the translator's format")
            for action in actions:
                observation, reward, terminated, truncated, info = env.step(action)
                total += float(reward)
                if not math.isfinite(total):
                    return wrong(what, f"reward {reward} at step {step}", "rewards must be finite")
                if terminated or truncated:
                    return ok(what, f"{step} steps, return {total:g}")
    return note(
        what,
        f"its episode exceeds env.max_turns={config.max_turns}, return {total:g}",
        "raise env.max_turns if the episode should end",
    )


def _fuzz(known: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    """Return the players' replies, parts of them, and random pieces of every action syntax."""
    pieces = (
        *("<action>", "</action>", "<tool_call>", "</tool_call>", "<think>", "</think>"),
        *("tap(", "act(", "say(", ")", ", ", "0", "1", "0.5", "-1", "1e999", "NaN", '"', "{", "}"),
        *('"\\q"', '"left"x', '"a\n"'),
        *('{"name": "', '", "arguments": {', "up", "left", "\x00", "\u202e", "\U0001d7d9", " "),
    )
    yield from known
    for number in range(_FUZZ - len(known)):
        inside = "".join(map(str, rng.choice(pieces, size=int(rng.integers(0, 12)))))
        reply = known[number % len(known)] if known else ""
        cut = int(rng.integers(len(reply) + 1))
        yield (inside, f"<action>{inside}</action>", reply[:cut] + inside + reply[cut:])[number % 3]


def _tokens(image: Image) -> int:
    height, width = (int(side) for side in image.shape[:2])
    return math.ceil(height / _MERGED) * math.ceil(width / _MERGED)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"info contains a {type(value).__name__}, which JSON cannot express")


def _short(value: Any, length: int = 160) -> str:
    text = " ".join(_COLORS.sub("", str(value)).split())
    return text if len(text) <= length else f"{text[:length]}..."
