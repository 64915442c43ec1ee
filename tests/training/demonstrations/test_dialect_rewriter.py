"""Demonstrations in the dialect of the job that learns from them."""

from pathlib import Path

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl.actions.action_chunks import read_actions
from agentrl.actions.dialect import open_dialect
from agentrl.actions.screen_actions import Tap
from agentrl.config import EnvConfig, ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.training.demonstrations.dialect_rewriter import DialectRewriter
from agentrl.types import ExecutedAction, Message
from tests.replay.episodes import screen
from tests.replay.episodes import turn as recorded_turn
from tests.training.demonstrations.test_demonstration_filter import (
    PHONES,
    learnt,
    played,
    recorded_by,
    same,
    samples,
)

LONG = ["rollout.max_context=16384", "rollout.max_new_tokens=400"]


@pytest.mark.adb
@pytest.mark.quick(1)
@pytest.mark.parametrize("dialect", ["qwen2.5-vl-mobile-use", "ui-tars-1.5", "autoglm"])
async def test_recorded_episodes_are_learned_in_the_dialect_of_the_job(
    tmp_path: Path, tiny_vlm: Path, dialect: str
) -> None:
    given = [f"run.dir={tmp_path}", *PHONES, *LONG, "env.translator_kwargs={instruct: true}"]
    plain = configuration.load("number_game", given)
    run, episodes = await played(plain, tiny_vlm, 1)
    job = recorded_by(configuration.load("number_game", [*given, f"env.dialect={dialect}"]), run)
    (written,) = learnt(job, tiny_vlm)
    opened = open_dialect(dialect)
    opened.resize = open_encoder(job.model, tiny_vlm).seen_size
    for turn, original in zip(written.episode.turns, episodes[0].turns, strict=True):
        action = opened.parse(turn.reply, opened.screen((720, 1280)))
        assert isinstance(action, Tap)
        # The tiny model sees few pixels, and a pixel is all that some dialects can say.
        np.testing.assert_allclose([action.x, action.y], original.action, atol=0.02)
        assert original.reply.partition("</think>")[0].removeprefix("<think>") in turn.reply


@pytest.mark.adb
@pytest.mark.quick(1)
@pytest.mark.parametrize("dialect", ["qwen2.5-vl-mobile-use", "gui-owl", "mai-ui"])
async def test_what_was_played_in_a_dialect_is_learned_as_it_was_played(
    tmp_path: Path, tiny_vlm: Path, dialect: str
) -> None:
    overrides = [f"env.dialect={dialect}", "env.translator_kwargs={instruct: true}"]
    config = configuration.load(
        "number_game", [f"run.dir={tmp_path}", *PHONES, *LONG, *overrides, "env.history=null"]
    )
    run, episodes = await played(config, tiny_vlm, 1)
    (written,) = learnt(recorded_by(config, run), tiny_vlm)
    for one, other in zip(samples(episodes[0]), samples(written.episode), strict=True):
        same(one, other)


@pytest.mark.parametrize(
    ("most", "dialect"), [(2, "qwen2.5-vl-mobile-use"), (2, "tool"), (1, "tool")]
)
def test_several_recorded_actions_become_one_reply(tiny_vlm: Path, most: int, dialect: str) -> None:
    env = EnvConfig(id="NumberGame-v0", dialect=dialect, max_actions_per_reply=most)
    encoder = open_encoder(ModelConfig(max_pixels=40_000), tiny_vlm)
    rewriter = DialectRewriter(resolve_env(env), encoder)
    touches = ([0.25, 0.5], [0.75, 0.5])
    chunk = tuple(ExecutedAction(action=one, reward=0.0, info={}, shown="") for one in touches)
    reply = "<think>both</think><action>tap(0.25, 0.50)</action><action>tap(0.75, 0.50)</action>"
    played = recorded_turn(action=[*touches], chunk=chunk, reply=reply)
    message = Message(role="user", text="<image>", images=(screen(1, 720, 1280),))
    if most == 1:
        with pytest.raises(ConfigError, match=r"env\.max_actions_per_reply=1 is too low"):
            rewriter.rewritten(message, played)
        return
    _, written = rewriter.rewritten(message, played)
    found = read_actions(rewriter.translator, written, most)
    np.testing.assert_allclose(found, touches, atol=0.02)
    assert written.count("both") == 1
