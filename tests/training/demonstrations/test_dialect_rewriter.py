"""Demonstrations in the dialect of the job that learns from them."""

from pathlib import Path

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl.actions.dialect import open_dialect
from agentrl.actions.screen_actions import Tap
from agentrl.policies.open_encoder import open_encoder
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
