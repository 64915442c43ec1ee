"""An engine with a damaged view of images is refused by every command that plays with it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

import agentrl
from agentrl import cli, replay
from agentrl.config import EngineCheckConfig, ModelConfig, RolloutConfig
from agentrl.errors import EngineMismatch
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import EngineSettings
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.replay.touch_positions import touch_of_action
from agentrl.training.engine_check import (
    ComparedPrompt,
    ReferenceCopy,
    chat_prompts,
    compare_engine,
)
from agentrl.training.inference.background_model import ModelThread
from agentrl.training.inference.inference_model import open_chat_target
from agentrl.types import Reply, TokenPredictions
from tests.data.rows import png, write_jsonl

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_environment.yaml"
HERE = ["rollout.launcher=local", "rollout.max_new_tokens=8"]
FLAT = f"rollout.engine={__file__}:FlatPositions"
SHORT = [
    "warm_start=null", "eval.baselines=[]", "eval.episodes=2", "train.steps=1", "rollout.groups=1",
    "rollout.group_size=2", "logging=[console]",
]  # fmt: skip


class FlatPositions(HFEngine):
    """Numbers image tokens one after the other, instead of by row and column (M-RoPE)."""

    async def start(self) -> None:
        await super().start()
        self._encoder.model_adapter.position_axes = 1


class Upside(HFEngine):
    """Gives each image's tokens in reverse order."""

    async def generate(self, prompt, sampling):
        images = tuple(image[::-1, ::-1].copy() for image in prompt.images)
        return await super().generate(replace(prompt, images=images), sampling)


def compare(kind, folder, dtype="float32"):
    """Compare an engine on a prompt without images and one with two."""

    async def run():
        engine = kind(EngineSettings(folder=folder, deadline_s=60, dtype=dtype), device="cpu")
        await engine.start()

        async def generate(prompt, sampling):
            engine.begin_episode()
            try:
                return await engine.generate(prompt, sampling)
            finally:
                engine.end_episode()

        rollout = RolloutConfig(engine="hf", max_new_tokens=24)
        copy = ReferenceCopy(folder, ModelConfig(path=str(folder), dtype=dtype), rollout)
        try:
            return await copy.compare(chat_prompts(copy.encoder, rollout), generate)
        finally:
            await engine.close()

    return asyncio.run(run())


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_batches_of_different_lengths_agree_with_transformers(tiny_vlm, dtype, most):
    found = compare(HFEngine, tiny_vlm, dtype)
    assert (found.prompts, len(found.differences)) == (2, 48)
    assert found.largest < most
    assert str(found).startswith("engine (hf) and transformers agree: the log-probabilities of 48")


@pytest.mark.parametrize("kind", [FlatPositions, Upside])
def test_damaged_image_positions_are_refused_with_the_versions(tiny_vlm, kind):
    import torch
    import transformers

    with pytest.raises(EngineMismatch, match=r"48 tokens of 2 prompts") as caught:
        compare(kind, tiny_vlm)
    for name, version in (("transformers", transformers.__version__), ("torch", torch.__version__)):
        assert f"{name} {version}" in str(caught.value)


@pytest.mark.parametrize(
    ("margin", "taps", "distances"),
    [
        (1.0, ("0.50", "0.50", "0.90"), [0, 0, 0.4]),  # one tap may be anywhere
        (1.0, ("0.50", "0.80", "0.90"), None),
        (0.1, ("0.50", "0.80", "0.90"), [0]),  # near ties do not count
    ],
)
def test_most_probable_taps_that_are_far_apart_are_refused(tiny_vlm, margin, taps, distances):
    encoder = ChatEncoder(tiny_vlm)
    rollout = RolloutConfig(engine="hf", engine_check=EngineCheckConfig(bound=0.2))
    (text, *_) = chat_prompts(encoder, rollout)
    replies, prompts = {}, []
    for number, x in enumerate(taps):
        prompt = replace(text.prompt, token_ids=(*text.prompt.token_ids, 40 + number))
        replies[prompt.token_ids] = (
            *encoder.reply_ids(f"<think>{x[2]} it is</think>tap({x}, 0.25)"),
        )
        prompts.append(ComparedPrompt(prompt=prompt, touch_of=lambda r: touch_of_action(None, r)))
    own = encoder.reply_ids("<think>5 it is</think>tap(0.50, 0.25)")

    async def generate(prompt, sampling):
        return Reply(token_ids=own, logprobs=(-1.0,) * len(own), version=0)

    def prediction(sequence):
        """A model that finds one reply most probable, and others less probable by a margin."""
        start = sequence.sampled_positions[0]
        reply = (*replies[sequence.token_ids[:start]], encoder.eos_token_ids[0])
        pairs = zip(sequence.token_ids[start:], reply, strict=False)
        logprobs = tuple(-1.0 if one == other else -1.0 - margin for one, other in pairs)
        return TokenPredictions(logprobs, reply[: len(sequence.sampled_positions)])

    async def predict(sequences):
        return [prediction(one) for one in sequences]

    def run():
        how = {"rollout": rollout, "dtype": "float32"}
        return asyncio.run(compare_engine(prompts, encoder, generate, predict, **how))

    if distances is None:
        with pytest.raises(EngineMismatch, match=r"taps in 3 prompts are 0\.3 screens apart"):
            run()
    else:
        assert run().distances == pytest.approx(distances)


def test_only_small_models_are_copied_by_default(tiny_vlm, monkeypatch):
    def is_wanted(enabled):
        check = EngineCheckConfig(enabled=enabled)
        rollout = RolloutConfig(engine="hf", engine_check=check)
        return ReferenceCopy(tiny_vlm, ModelConfig(path=str(tiny_vlm)), rollout).is_wanted()

    assert [is_wanted(one) for one in (None, True, False)] == [True, True, False]
    monkeypatch.setattr("agentrl.training.engine_check._MAX_COPY_BYTES", 1000)
    assert [is_wanted(one) for one in (None, True, False)] == [False, True, False]


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_job_whose_engine_is_damaged_stops_before_its_first_episode(tmp_path, capsys, command):
    settings = [*SHORT, *HERE, f"run.dir={tmp_path}", "run.name=it"]
    assert cli.run([command, str(EXAMPLE), *settings, FLAT]) == 1
    error = capsys.readouterr().err
    assert "EngineMismatch: rollout.engine=" in error
    assert "rollout.engine_check.enabled=false" in error
    assert not (tmp_path / "it" / "summary.json").exists()
    # An episode for the comparison is no episode of the job.
    run = tmp_path / "it"
    assert not run.exists() or not replay.open(run).episodes()


def test_evaluations_report_and_record_the_comparison(tmp_path, capsys):
    overrides = [*HERE, f"run.dir={tmp_path}", "logging=[console]"]
    found = agentrl.evaluate(EXAMPLE, episodes=2, overrides=overrides)
    assert found.episodes == 2
    assert "transformers agree: the log-probabilities of" in capsys.readouterr().err
    recorded = json.loads((found.run / "summary.json").read_text())["engine_check"]
    assert recorded.startswith("engine (hf) and transformers agree")


def test_infer_and_chat_refuse_it_too(tiny_vlm, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    rows = [{"question": "What is this?", "image": "a.png"}, {"question": "And 2 + 2?"}]
    data, out = str(write_jsonl(tmp_path / "rows.jsonl", rows)), tmp_path / "out.jsonl"
    settings = [*HERE, "model.image_size=[112, 112]"]
    found = agentrl.infer(tiny_vlm, data, out, overrides=[*settings, "rollout.engine=hf"])
    assert "16 tokens of 2 prompts" in found.engine_check
    out.unlink()
    with pytest.raises(EngineMismatch, match="of 2 prompts"):
        agentrl.infer(tiny_vlm, data, out, overrides=[*settings, FLAT])
    settings.append("rollout.engine_check.enabled=false")
    assert agentrl.infer(tiny_vlm, data, out, overrides=[*settings, FLAT]).failed == 0
    with pytest.raises(EngineMismatch), ModelThread(open_chat_target(str(tiny_vlm), [FLAT])):
        pass
