"""Supervised fine-tuning: real data in the formats of other trainers, and the tiny model."""

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import agentrl
from agentrl import cli, replay
from agentrl import config as configuration
from agentrl.cluster.placement import Node, plan_layout
from agentrl.data.offline_rows import read_chat, read_preference
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.offline.finetuning_methods import SupervisedFinetuning
from agentrl.training.offline.offline_dataset import (
    OfflineDataset,
    encode_learned,
    encode_pair,
)
from tests.data.rows import picture, png, write_jsonl
from tests.data.test_offline_rows import MS_SWIFT, SHARE_GPT, TRL
from tests.training.offline import jobs

SMALL = [*jobs.SMALL, "optim.lr=3e-3", "sft.batch=4"]
LEARNED = ["sft.steps=16", "sft.hold_out=0.25", "sft.eval_every=4"]
REPLIES = {
    "trl": (TRL, ["A cat.", "Still."]),
    "ms-swift": (MS_SWIFT, ["A cat."]),
    "sharegpt": (SHARE_GPT, ["A cat."]),
}


def colors(count):
    """Conversations about the brightness of a picture, which can be learned."""
    rows = []
    for k in range(count):
        bright = k % 2
        said = ["dark", "bright"][bright]
        asked = {"role": "user", "content": "<image>bright or dark?"}
        reply = {"role": "assistant", "content": said}
        rows.append({"messages": [asked, reply], "images": [f"{bright}.png"]})
    return rows


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    for bright in (0, 1):
        (folder / f"{bright}.png").write_bytes(png(picture(20 + 200 * bright)))
    return write_jsonl(folder / "chats.jsonl", colors(24))


@pytest.fixture(scope="module")
def job(tmp_path_factory, chats):
    folder = tmp_path_factory.mktemp("jobs")
    path = folder / "job.yaml"
    path.write_text(f"sft: {{train: {{data: {chats}}}}}\nrun: {{dir: {folder / 'runs'}}}\n")
    return lambda *more: (path, [*SMALL, *more])


@pytest.fixture(scope="module")
def learned(job):
    path, overrides = job(*LEARNED, "run.name=learns")
    return agentrl.sft(path, overrides=overrides)


def opened(found, encoder):
    return OfflineDataset(found.train, found.train_indices, encoder, encode_learned, 0)


def test_a_model_learns_conversations_with_images(learned):
    run = learned
    before, after = run.summary["before"], run.summary["after"]
    assert before["loss"] > 1
    assert after["loss"] < 0.2 * before["loss"]
    assert after["token_accuracy"] > before["token_accuracy"]
    assert run.summary["steps"] == 16
    steps = [one for one in jobs.metrics(run) if "learner/loss" in one]
    assert [one["step"] for one in steps] == list(range(1, 17))
    assert steps[-1]["epoch"] == pytest.approx(16 * 4 / 18)
    weights = load_file(run.path / "model" / "model.safetensors")
    assert all(torch.isfinite(one).all() for one in weights.values())


@pytest.mark.parametrize("origin", REPLIES)
def test_only_replies_of_the_assistant_are_learned(tmp_path, tiny_vlm, origin):
    row, replies = REPLIES[origin]
    (tmp_path / "a.png").write_bytes(png(picture(20)))
    path = write_jsonl(tmp_path / "rows.jsonl", [row])
    config = configuration.Config()
    config.sft = configuration.SFTConfig(train=configuration.DataConfig(data=str(path)))
    found = SupervisedFinetuning(config).open_data()
    encoder = ChatEncoder(tiny_vlm)
    (sequence,) = opened(found, encoder).sequences(0, 1)
    learned = [sequence.token_ids[place] for place in sequence.sampled_positions]
    assert learned == [token for reply in replies for token in encoder.reply_ids(reply)]
    assert len(sequence.images) == 1


def test_the_loss_is_that_of_transformers(tmp_path, tiny_vlm, chats):
    config = configuration.Config()
    config.sft = configuration.SFTConfig(train=configuration.DataConfig(data=str(chats)))
    found = SupervisedFinetuning(config).open_data()
    encoder = ChatEncoder(tiny_vlm)
    rows = opened(found, encoder).sequences(0, 6)
    learner = Learner(LearnerSettings.of(config), tiny_vlm)
    learner.begin_offline(config.sft)
    measured = learner.offline_loss(rows)
    learner.close()
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    processor = AutoImageProcessor.from_pretrained(tiny_vlm)
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    losses = []
    for row in rows:
        ids = torch.tensor([row.token_ids])
        shown = dict(processor(images=list(row.images), return_tensors="pt"))
        shown["mm_token_type_ids"] = (ids == encoder.model_adapter.image_token_id).int()
        with torch.no_grad():
            logits = model(input_ids=ids, **shown).logits[0]
        logits[:, list(encoder.model_adapter.banned_token_ids)] = -torch.inf
        places = torch.tensor(row.sampled_positions)
        losses.append(cross_entropy(logits[places - 1], ids[0, places], reduction="none"))
    expected = torch.cat(losses)
    assert measured["count"] == len(expected)
    assert measured["loss"] == pytest.approx(float(expected.mean()), rel=1e-5)


def test_recorded_episodes_are_learned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["eval", "sokoban", "--policy", "expert", "--episodes", "4", "--demos"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert cli.run(["export", str(run), "chats.jsonl"]) == 0
    (tmp_path / "sft.yaml").write_text("sft: {train: {data: chats.jsonl}}\n")
    assert cli.run(["sft", "sft.yaml", *SMALL, "sft.steps=2", "run.name=cloned"]) == 0
    assert len(load_file("runs/cloned/model/model.safetensors")) > 10
    assert "run: runs/cloned" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_job_continues_with_the_same_weights(job, learned):
    path, overrides = job(*LEARNED, "run.name=killed")
    folder = learned.path.parent / "killed"
    jobs.kill_after_first_checkpoint(folder, "sft", path, *overrides)
    resumed = agentrl.sft("", resume=folder)
    assert jobs.losses(learned) == jobs.losses(resumed)
    assert jobs.losses(learned).keys() == {
        "before", *(f"step {k}" for k in (4, 8, 12, 16)), "after"
    }  # fmt: skip
    expected, found = (
        load_file(run.path / "model" / "model.safetensors") for run in (learned, resumed)
    )
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_ctrl_c_saves_the_last_finished_step(job, learned):
    path, overrides = job(*LEARNED, "run.name=interrupted", "checkpoint.every=100")
    folder = learned.path.parent / "interrupted"
    with jobs.interrupted_after_step(folder, 4), pytest.raises(KeyboardInterrupt):
        agentrl.sft(path, overrides=overrides)
    saved = checkpoint_store.step_of(checkpoint_store.latest(folder))
    assert saved == jobs.metrics(replay.Run(folder))[-1]["step"] >= 4
    resumed = agentrl.sft("", resume=folder)
    assert jobs.losses(learned) == jobs.losses(resumed)


def test_a_skipped_step_does_not_advance_the_learning_rate(job, monkeypatch):
    rates, real = [], Optimizer.step

    def step(self, lr, loss):
        rates.append(lr)
        return real(self, lr, loss * math.nan if len(rates) == 2 else loss)

    monkeypatch.setattr(Optimizer, "step", step)
    path, overrides = job("sft.steps=4", "optim.lr_warmup_steps=4", "run.name=skips")
    run = agentrl.sft(path, overrides=overrides)
    assert [rate / 3e-3 for rate in rates] == pytest.approx([0.25, 0.5, 0.5, 0.75])
    assert [step["learner/skipped"] for step in jobs.metrics(run)] == [0, 1, 0, 0]


@pytest.mark.slow
def test_training_stops_when_the_loss_no_longer_falls(job):
    path, overrides = job(
        "sft.steps=40", "sft.hold_out=0.25", "sft.eval_every=2", "sft.patience=2", "optim.lr=3e-2",
        "run.name=early",
    )  # fmt: skip
    run = agentrl.sft(path, overrides=overrides)
    assert run.summary["steps"] < 40
    losses = [value["loss"] for name, value in run.summary.items() if name.startswith("step ")]
    assert run.summary["after"]["loss"] == pytest.approx(min(losses), rel=1e-4)
    merged = run.path.with_name("merged")
    assert cli.run(["merge", str(run.path), str(merged)]) == 0
    expected, found = (load_file(one / "model.safetensors") for one in (run.path / "model", merged))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_model_that_training_only_hurts_is_kept_as_it_was(job, learned):
    path, overrides = job(
        "sft.steps=20", "sft.hold_out=0.25", "sft.eval_every=1", "sft.patience=2", "optim.lr=1",
        "run.name=hurt", f"model.path={learned.path / 'model'}",
    )  # fmt: skip
    run = agentrl.sft(path, overrides=overrides)
    assert run.summary["steps"] == 2
    assert run.summary["model_step"] == 0
    assert run.summary["after"]["loss"] == pytest.approx(run.summary["before"]["loss"], rel=1e-4)


SAYS = {"role": "assistant", "content": "Yes."}
ASKS = {"role": "user", "content": "What?"}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "system", "content": "<image>"}, ASKS, SAYS], "the system message has an image"),
        ([{"role": "user", "content": "\ud800"}, SAYS], "characters that cannot be encoded"),
    ],
)
def test_conversations_that_cannot_be_encoded_are_refused_or_skipped(tiny_vlm, messages, said):
    image = png(picture(20))
    images = [image] * sum("<image>" in message["content"] for message in messages)
    row = replace(read_chat({"messages": messages, "images": images}), images=tuple(images))
    with pytest.raises(BadRow, match=said):
        encode_learned(row, ChatEncoder(tiny_vlm), 0)


def test_replies_that_follow_each_other_in_a_prompt_are_not_learned(tiny_vlm):
    prompt = [ASKS, SAYS, SAYS, ASKS]
    chosen = [
        {"role": "assistant", "content": "Ja."},
        ASKS,
        {"role": "assistant", "content": "Oui."},
    ]
    row = read_preference({"prompt": prompt, "chosen": chosen, "rejected": [SAYS]})
    encoder = ChatEncoder(tiny_vlm)
    better, worse = encode_pair(row, encoder, 0)
    learned = [
        tuple(one.token_ids[place] for place in one.sampled_positions) for one in (better, worse)
    ]
    assert learned == [
        encoder.reply_ids("Ja.") + encoder.reply_ids("Oui."), encoder.reply_ids("Yes.")
    ]  # fmt: skip
    same = replace(row, rejected=row.chosen)
    with pytest.raises(BadRow, match="the same tokens"):
        encode_pair(same, encoder, 0)
    with pytest.raises(BadRow, match="no assistant message"):
        encode_pair(replace(row, chosen=row.prompt[:1]), encoder, 0)


def test_without_engines_every_gpu_has_a_rank():
    config = configuration.Config()
    nodes = [Node(id=f"{k}" * 8, address=f"10.0.0.{k}", cpus=8, gpus=4) for k in (1, 2)]
    rollout = replace(config.rollout, actors=0, place="auto")
    layout = plan_layout(nodes, rollout, config.train, 0)
    assert layout.engines == ()
    assert len({(rank.node, rank.gpus) for rank in layout.ranks}) == 8


@pytest.mark.slow
def test_two_ranks_under_ray_learn_what_one_does(job, learned):
    two = ["rollout.launcher=ray", "train.ranks=2", "sft.steps=4", "run.name=ranks"]
    path, overrides = job(*LEARNED, *two)
    ranks = agentrl.sft(path, overrides=overrides)
    for name in ("before", "step 4"):
        expected = learned.summary[name]["loss"]
        assert ranks.summary[name]["loss"] == pytest.approx(expected, rel=1e-2)


def test_adapters_are_trained(job):
    path, overrides = job("sft.steps=6", "model.lora.rank=4", "run.name=lora", "optim.lr=1e-2")
    run = agentrl.sft(path, overrides=overrides)
    losses = [one["learner/loss"] for one in jobs.metrics(run) if "learner/loss" in one]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("sft.train.data=none.jsonl", r"sft\.train: data=none\.jsonl: no such file"),
        ("sft.hold_out=1", r"sft\.hold_out=1.*below 1"),
        ("sft.patience=2", r"sft\.patience=2: requires evaluations"),
        ("sft.max_tokens=4", r"above sft\.max_tokens=4"),
        ("sft=null", r"sft: the configuration has no such section"),
    ],
)
def test_bad_settings_are_refused(job, setting, said):
    path, overrides = job("sft.steps=1", "run.name=bad", setting)
    with pytest.raises(ConfigError, match=said):
        agentrl.sft(path, overrides=overrides)


def test_the_default_environment_is_not_played_for_lack_of_one(learned, capsys):
    assert cli.run(["eval", str(learned.path)]) == 2
    assert f"{learned.path} trains on a data set" in capsys.readouterr().err
    played = ["env.id=FrozenLake-v1", f"run.dir={learned.path.parent}", "rollout.launcher=local"]
    assert cli.run(["eval", str(learned.path), "--policy=random", "--episodes=1", *played]) == 0


def test_a_dry_run_counts_the_conversations(job, capsys):
    path, overrides = job("sft.hold_out=0.25")
    assert cli.run(["sft", str(path), *overrides, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "training examples: 18" in shown
    assert "held-out examples: 6" in shown
