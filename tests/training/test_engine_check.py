"""An engine with a damaged view of images is refused by every command that plays with it."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import agentrl
from agentrl import cli, replay
from agentrl.cluster.machine_resources import Space
from agentrl.config import Config, EngineCheckConfig, ModelConfig, RolloutConfig
from agentrl.errors import ConfigError, EngineMismatch
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import EngineSettings
from agentrl.policies.engines.hf_engine import HFEngine
from agentrl.policies.reference_model import ReferenceModel
from agentrl.replay.touch_positions import touch_of_action
from agentrl.training.engine_check.compared_prompts import ComparedPrompt, chat_prompts
from agentrl.training.engine_check.engine_comparison import compare_engine
from agentrl.training.engine_check.greedy_taps import reply_sequence
from agentrl.training.engine_check.reference_copy import ReferenceCopy
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


def test_the_learner_predicts_in_a_single_pass(make_learner, tiny_vlm):
    learner, encoder = make_learner(Config()), ChatEncoder(tiny_vlm)
    prompts = chat_prompts(encoder, RolloutConfig())
    reply = Reply(token_ids=(40, 41, 42), logprobs=(-1.0,) * 3, version=0)
    sequences = [reply_sequence(one.prompt, reply, n) for n, one in enumerate(prompts)]
    passes = []
    hook = learner._policy.module.register_forward_hook(lambda *_: passes.append(1))
    found = learner.predict_tokens(sequences)
    hook.remove()
    assert len(passes) == 1
    model = ReferenceModel(tiny_vlm, encoder)
    for one, own in zip(prompts, found, strict=True):
        expected = model.predict(one.prompt, reply.token_ids)
        assert own.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
        assert own.most_probable == expected.most_probable


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
    engine_ids = encoder.reply_ids("<think>5 it is</think>tap(0.50, 0.25)")

    async def generate(prompt, sampling):
        return Reply(token_ids=engine_ids, logprobs=(-1.0,) * len(engine_ids), version=0)

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
        with pytest.raises(EngineMismatch, match=r"taps differ by 0\.3 of the screen \(median"):
            run()
    else:
        assert run().distances == pytest.approx(distances)


def test_the_engine_replies_greedily_only_where_it_may_tap(tiny_vlm):
    encoder = ChatEncoder(tiny_vlm)
    rollout = RolloutConfig(engine="hf", temperature=0.5)
    (text, *_) = chat_prompts(encoder, rollout)
    assert text.touch_of is None
    reply = Reply(token_ids=(40, 41), logprobs=(-1.0, -1.0), version=0)
    temperatures, passes, error = [], [], 0.003  # above 0.002, but not above 0.002 / 0.5

    async def generate(prompt, sampling):
        temperatures.append(sampling.temperature)
        return reply

    async def predict(sequences):
        passes.append(len(sequences))
        return [TokenPredictions((-1.0 - error,) * 2, (42, 41)) for _ in sequences]

    def run(touch_of, **settings):
        prompts = [replace(text, touch_of=touch_of)]
        how = {"rollout": replace(rollout, **settings), "dtype": "float32"}
        return asyncio.run(compare_engine(prompts, encoder, generate, predict, **how))

    assert run(None).distance is None
    assert (temperatures, passes) == ([0.5], [1])
    assert run(lambda reply: None).distance is None
    assert (temperatures, passes) == ([0.5, 0.5, 0.0], [1, 1])
    error = 0.005
    with pytest.raises(EngineMismatch) as caught:
        run(None)
    assert "engine_kwargs" not in str(caught.value)
    assert "rollout.engine=vllm" in str(caught.value)  # the engine that disagrees is hf
    with pytest.raises(EngineMismatch, match=r"fp8.*, or set rollout.engine=hf\."):
        run(None, engine="vllm", engine_kwargs={"quantization": "fp8"})


def is_wanted(folder, enabled=None, dtype="float32"):
    """Whether an engine is compared with a second copy of the model."""
    rollout = RolloutConfig(engine="hf", engine_check=EngineCheckConfig(enabled=enabled))
    return ReferenceCopy(folder, ModelConfig(path=str(folder), dtype=dtype), rollout).is_wanted()


def test_only_models_that_are_small_in_memory_are_copied_by_default(tiny_vlm, monkeypatch):
    limits = "agentrl.training.engine_check.reference_copy."
    settings = (None, True, False)
    assert [is_wanted(tiny_vlm, one) for one in settings] == [True, True, False]
    # Its file has float32.
    size = (tiny_vlm / "model.safetensors").stat().st_size
    monkeypatch.setattr(f"{limits}_MAX_COPY_BYTES", 0.6 * size)
    assert [is_wanted(tiny_vlm, one) for one in settings] == [False, True, False]
    assert is_wanted(tiny_vlm, dtype="bfloat16")
    monkeypatch.setattr(f"{limits}host_memory", lambda: Space(total=size, free=size // 2))
    assert not is_wanted(tiny_vlm, dtype="bfloat16")


def test_quantized_models_are_not_compared(tiny_vlm, tmp_path, caplog):
    """transformers cannot compute most of them on a CPU."""
    folder = shutil.copytree(tiny_vlm, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    assert not is_wanted(folder)
    assert caplog.messages == [
        "the engine is not compared with transformers, because the model is quantized"
    ]
    with pytest.raises(ConfigError, match=r"engine_check\.enabled=true: .*/model is quantized"):
        is_wanted(folder, True)


@pytest.mark.parametrize("command", [["train"], ["eval"], ["play", "--policy", "model"]])
def test_a_job_whose_engine_is_damaged_stops_before_its_first_episode(tmp_path, capsys, command):
    settings = [*SHORT, *HERE, f"run.dir={tmp_path}", "run.name=it"]
    assert cli.run([*command, str(EXAMPLE), *settings, FLAT]) == 1
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
    assert (recorded["engine"], recorded["prompts"], recorded["tap_distance"]) == ("hf", 4, None)
    assert 0 <= recorded["logprob_mean"] <= recorded["logprob_max"] < recorded["logprob_bound"]


def test_infer_and_chat_refuse_it_too(tiny_vlm, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    rows = [{"question": "What is this?", "image": "a.png"}, {"question": "And 2 + 2?"}]
    data, out = str(write_jsonl(tmp_path / "rows.jsonl", rows)), tmp_path / "out.jsonl"
    settings = [*HERE, "model.image_size=[112, 112]"]
    found = agentrl.infer(tiny_vlm, data, out, overrides=[*settings, "rollout.engine=hf"])
    assert "16 tokens of 2 prompts" in str(found.engine_check)
    out.unlink()
    with pytest.raises(EngineMismatch, match="of 2 prompts"):
        agentrl.infer(tiny_vlm, data, out, overrides=[*settings, FLAT])
    settings.append("rollout.engine_check.enabled=false")
    assert agentrl.infer(tiny_vlm, data, out, overrides=[*settings, FLAT]).failed == 0
    with pytest.raises(EngineMismatch), ModelThread(open_chat_target(str(tiny_vlm), [FLAT])):
        pass
