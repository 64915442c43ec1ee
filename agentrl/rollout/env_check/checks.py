"""What an environment is put through: each trial finds one thing."""

import json
import math
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing import get_context
from threading import Thread
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from agentrl.config import EnvConfig
from agentrl.errors import ActionError, told
from agentrl.findings import Finding, note, ok, wrong
from agentrl.rollout.env_arguments import game_of
from agentrl.rollout.env_check.random_play import SEED, Played, difference, play, same
from agentrl.rollout.make_env import load_player, make_env, open_translator
from agentrl.text import quoted
from agentrl.types import Image

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FUZZ = 2000
_MERGED = 28
"""Pixels of the side of what Qwen2.5-VL makes one token of."""
_MANY_TOKENS = 2000
_LONG_TEXT = 20_000
_SLOW_MS = 1000.0

Twice = Callable[[], tuple[Played, Played]]
"""Plays the same game twice, or tells how it was played before."""


def made(config: EnvConfig) -> Finding:
    """It is there and can be made."""
    with closing(make_env(config)) as made:
        kind = type(made.unwrapped).__name__
        return ok("made", f"{kind}: {made.action_space} -> {_short(made.observation_space)}")


def gymnasium(config: EnvConfig) -> Finding:
    """Gymnasium's own checker passes."""
    with closing(make_env(config)) as made, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # It renders in every mode that it knows, which needs the environment made anew.
            check_env(made.unwrapped, skip_render_check=True)
        except Exception as error:
            return wrong("gymnasium's checker", _short(error), "see gymnasium's Env")
    complaints = [_short(str(one.message)) for one in caught]
    if complaints:
        more = f" and {len(complaints) - 1} more" if len(complaints) > 1 else ""
        return note("gymnasium's checker", complaints[0] + more, "see gymnasium's Env")
    return ok("gymnasium's checker", "passes")


def seeds(config: EnvConfig, twice: Twice) -> Finding:
    """The same seed plays the same game, and another one another."""
    one, other = twice()
    if place := difference(one, other):
        return wrong(
            "seeds", f"two games of seed {SEED} differ {place}", "draw with self.np_random alone"
        )
    starts = [play(config, 0, seed).observations[0] for seed in range(SEED, SEED + 4)]
    if all(same(starts[0], start) for start in starts[1:]):
        return note("seeds", "all seeds begin alike", "none needed, if the game has one beginning")
    return ok("seeds", f"the same seed gives the same {len(one.rewards)} steps, others differ")


def infos(config: EnvConfig, twice: Twice) -> Finding:
    """What it tells beside is plain, the same for the same seed, and names the state."""
    one, other = twice()
    for place, (a, b) in enumerate(zip(one.infos, other.infos, strict=False)):
        json.dumps(a, default=_plain)
        if differs := [k for k in a if k in b and not same(a[k], b[k])]:
            return note(
                "info", f"{differs[0]!r} differs at step {place}", "no timings, no ids in info"
            )
    keys = sorted(one.infos[-1])
    known = [key for key in ("state_key", "metrics", "phase") if key in keys]
    if "state_key" not in known and config.state_key == "info":
        return note(
            "info",
            f"no state_key among {', '.join(keys) or 'nothing'}",
            "whole episodes are compared; env.state_key=observation or screen, or name the state",
        )
    return ok("info", f"{', '.join(known) or 'states are named by what is shown'}")


def again(config: EnvConfig) -> Finding:
    """After its end a game can be begun again."""
    with closing(make_env(config)) as made:
        made.action_space.seed(SEED)
        made.reset(seed=SEED)
        for step in range(1, config.max_turns + 1):
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            if not math.isfinite(float(reward)):
                return wrong("reset after the end", f"reward {reward} at step {step}", "finite")
            if terminated or truncated:
                made.reset(seed=SEED + 1)
                made.step(made.action_space.sample())
                return ok("reset after the end", f"a random game ended after {step} steps")
    return note(
        "reset after the end",
        f"no random game ended within env.max_turns={config.max_turns}",
        "none needed, if games are that long; they are truncated there",
    )


def speed(twice: Twice) -> Finding:
    """How long a reset and a step take."""
    played, _ = twice()
    if not played.step_ms:
        return wrong("speed", "the game was over at once", "a game has at least one step")
    median, worst = float(np.median(played.step_ms)), max(played.step_ms)
    detail = f"reset {played.reset_ms:.1f} ms, step {median:.2f} ms, at most {worst:.1f} ms"
    if worst > _SLOW_MS:
        return note("speed", detail, "a model waits for it; rollout.concurrency hides some of it")
    return ok("speed", detail)


def shown(twice: Twice) -> Finding:
    """What the model sees, and how many tokens that is."""
    shown = twice()[0].shown
    sizes = {image.shape[:2] for seen in shown for image in seen.images}
    pictures = ", ".join(f"{width}x{height}" for height, width in sorted(sizes))
    tokens = max(sum(_tokens(image) for image in seen.images) for seen in shown)
    longest = max(len(seen.text) for seen in shown)
    detail = f"pictures {pictures or 'none'} ({tokens} tokens for Qwen2.5-VL), text {longest}"
    if not tokens and not longest:
        return wrong("what is shown", "nothing", "the translator must show a picture or text")
    if tokens > _MANY_TOKENS:
        return note("what is shown", detail, "smaller: model.max_pixels or model.image_size")
    if longest > _LONG_TEXT:
        return note("what is shown", f"{detail} characters", "less: env.translator.text")
    return ok("what is shown", f"{detail} characters")


def words(config: EnvConfig) -> Finding:
    """How to play is told."""
    words = open_translator(config).instructions()
    if not words:
        return note("words", "no instructions", "none needed for a model that was taught the game")
    return ok("words", _short(words, 100))


def replies(config: EnvConfig) -> Finding:
    """Whatever a model writes is an action of the space, or an ActionError."""
    translator, rng = open_translator(config), np.random.default_rng(SEED)
    with closing(make_env(config)) as made:
        space, info = made.action_space, made.reset(seed=SEED)[1]
    said = [load_player(config, name).reply(info, rng) for name in game_of(config).players]
    actions, worst = 0, 0.0
    for reply in _fuzz(said, rng):
        started = time.perf_counter()
        try:
            action = translator.to_action(reply)
        except ActionError:
            continue
        except Exception as error:
            return wrong("replies", f"{quoted(reply, 60)}: {told(error)}", "raise ActionError")
        finally:
            worst = max(worst, time.perf_counter() - started)
        if not space.contains(action):
            return wrong(
                "replies", f"{quoted(reply, 60)} became {action!r}", f"no action of {space}"
            )
        actions += 1
    return ok("replies", f"{_FUZZ} of any kind: {actions} actions, the rest refused; {worst:.3f} s")


def copies(config: EnvConfig, steps: int) -> Finding:
    """Several at once in threads of one process, as rollouts have them."""
    alone = play(config, steps)
    copies: list[Played] = []
    threads = [Thread(target=lambda: copies.append(play(config, steps))) for _ in range(2)]
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()
    if len(copies) < len(threads) or any(difference(alone, copy) for copy in copies):
        return wrong("copies", "two at once play otherwise than one", "share nothing between them")
    return ok("copies", "two at once play as one does alone")


def elsewhere(config: EnvConfig, steps: int, deadline_s: float) -> Finding:
    """It can be sent to another process, and plays there as here."""
    pickle.dumps(config)
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_play_elsewhere, args=(config, steps, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(deadline_s):
            return wrong("another process", f"no answer within {deadline_s:g} s", "see above")
        played = ours.recv()
    except EOFError:
        return wrong("another process", "it cannot be made there", "name it by module or file")
    finally:
        child.kill()
        child.join()
    if isinstance(played, str):
        return wrong("another process", played, "name it by module or file, import all it needs")
    if place := difference(play(config, steps), played):
        return wrong("another process", f"plays otherwise {place}", "hash() differs, say; seed all")
    return ok("another process", "plays as here")


def _play_elsewhere(config: EnvConfig, steps: int, answer: Any) -> None:
    try:
        answer.send(play(config, steps))
    except Exception as error:
        answer.send(told(error))


def player(config: EnvConfig, name: str) -> Finding:
    """A scripted player's replies are read, and its game goes on to its end."""
    what = f"player {name}"
    translator, player = open_translator(config), load_player(config, name)
    rng, total = np.random.default_rng([SEED, 1]), 0.0  # not the game's own chance
    with closing(make_env(config, getattr(translator, "render_mode", None))) as made:
        _, info = made.reset(seed=SEED)
        for step in range(1, config.max_turns + 1):
            reply = player.reply(info, rng)
            try:
                action = translator.to_action(reply)
            except ActionError as error:
                return wrong(
                    what, f"says {quoted(reply, 60)}: {error}", "say what the translator reads"
                )
            _, reward, terminated, truncated, info = made.step(action)
            total += float(reward)
            if not math.isfinite(total):
                return wrong(what, f"step {step} is worth {reward}", "a reward is a finite number")
            if terminated or truncated:
                return ok(what, f"{step} steps, return {total:g}")
    return note(what, f"no end within env.max_turns, return {total:g}", "raise env.max_turns?")


def _fuzz(said: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    """Replies of every kind: what players said, parts of it, and words of any grammar between."""
    pieces = (
        *("<action>", "</action>", "<tool_call>", "</tool_call>", "<think>", "</think>"),
        *("tap(", "act(", "say(", ")", ", ", "0", "1", "0.5", "-1", "1e999", "NaN", '"', "{", "}"),
        *('"\\q"', '"left"x', '"a\n"'),
        *('{"name": "', '", "arguments": {', "up", "left", "\x00", "\u202e", "\U0001d7d9", " "),
    )
    yield from said
    for number in range(_FUZZ - len(said)):
        inside = "".join(map(str, rng.choice(pieces, size=int(rng.integers(0, 12)))))
        whole = said[number % len(said)] if said else ""
        cut = int(rng.integers(len(whole) + 1))
        kinds = (inside, f"<action>{inside}</action>", whole[:cut] + inside + whole[cut:])
        yield kinds[number % 3]


def _tokens(image: Image) -> int:
    height, width = (int(side) for side in image.shape[:2])
    return math.ceil(height / _MERGED) * math.ceil(width / _MERGED)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"info holds a {type(value).__name__}, which no JSON can")


def _short(value: Any, length: int = 160) -> str:
    text = " ".join(_COLOURS.sub("", str(value)).split())
    return text if len(text) <= length else f"{text[:length]}..."
