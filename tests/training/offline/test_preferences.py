"""Training on pairs of answers, and of reward models: real rows with images, and the tiny model."""

import json
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import agentrl
from agentrl import cli
from agentrl.config import RewardConfig
from agentrl.errors import ConfigError
from agentrl.policies.trained_reward import TrainedReward
from agentrl.rewards.remote import Remote
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.data.rows import picture, png, write_jsonl
from tests.rollout.rewards.test_reward_calls import TICKET
from tests.rollout.test_collector import episode_of
from tests.training.offline import jobs

LEARNED = ["hold_out=0.25", "eval_every=10", "batch=6", "steps=30"]
TRAINERS = {
    "dpo": ("dpo", agentrl.dpo),
    "reward_model": ("train-reward-model", agentrl.train_reward_model),
}


def brightness(count):
    """Pairs about the brightness of a picture, which can be learned."""
    rows = []
    for k in range(count):
        said = ["dark", "bright"]
        better, worse = said[k % 2], said[1 - k % 2]
        asked = [{"role": "user", "content": "<image>bright or dark?"}]
        rows.append(
            {
                "prompt": asked,
                "images": [f"{k % 2}.png"],
                "chosen": [{"role": "assistant", "content": better}],
                "rejected": [{"role": "assistant", "content": worse}],
            }
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferences")
    for bright in (0, 1):
        (folder / f"{bright}.png").write_bytes(png(picture(20 + 200 * bright)))
    write_jsonl(folder / "pairs.jsonl", brightness(24))
    return folder


def run(folder, section, name, *more, settings=LEARNED):
    """Run a small job; the settings are those of its section."""
    config, overrides = arguments(folder, section, name, *more, settings=settings)
    return TRAINERS[section][1](config, overrides=overrides)


def arguments(folder, section, name, *more, settings=LEARNED):
    path = folder / f"{section}.yaml"
    data = folder / "pairs.jsonl"
    path.write_text(f"{section}: {{train: {{data: {data}}}}}\nrun: {{dir: {folder / 'runs'}}}\n")
    own = [f"{section}.{setting}" for setting in settings]
    beta = ["dpo.beta=0.5"] if section == "dpo" else []
    return path, [*jobs.SMALL, "optim.lr=5e-3", f"run.name={name}", *beta, *own, *more]


@pytest.fixture(
    scope="module", params=["dpo", pytest.param("reward_model", marks=pytest.mark.slow)]
)
def learned(request, folder):
    section = request.param
    return section, run(folder, section, f"{section}-learns")


def test_the_better_answer_wins_on_held_out_pairs(learned):
    section, trained = learned
    before, after = trained.summary["before"], trained.summary["after"]
    assert before["accuracy"] == 0.5  # all pairs tie
    stage = "preference training" if section == "dpo" else "reward model training"
    assert {"start", stage, "saving"} <= trained.summary["seconds"].keys()
    assert before["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert after["loss"] < 0.5 * before["loss"]
    assert after["accuracy"] == 1.0
    assert after["margin"] > 0 == before["margin"]
    assert after["count"] == 6
    steps = [one for one in jobs.metrics(trained) if "learner/loss" in one]
    assert [one["step"] for one in steps] == list(range(1, 31))
    assert {"learner/accuracy", "learner/margin", "learner/reward_chosen"} <= steps[0].keys()


@pytest.mark.slow
def test_a_killed_job_continues_with_the_same_weights(folder, learned):
    section, trained = learned
    command, start = TRAINERS[section]
    config, overrides = arguments(folder, section, f"{section}-killed")
    killed = trained.path.parent / f"{section}-killed"
    jobs.kill_after_first_checkpoint(killed, command, config, *overrides)
    resumed = start("", resume=killed)
    assert jobs.losses(trained) == jobs.losses(resumed)
    expected, found = (
        load_file(one.path / "model" / "model.safetensors") for one in (trained, resumed)
    )
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.slow
def test_two_ranks_under_ray_learn_what_one_does(folder, learned):
    section, trained = learned
    two = ["rollout.launcher=ray", "train.ranks=2", f"{section}.steps=10"]
    ranks = run(folder, section, f"{section}-ranks", *two)
    for name in ("before", "step 10"):
        found, expected = ranks.summary[name], trained.summary[name]
        assert found["loss"] == pytest.approx(expected["loss"], rel=5e-2)
        assert found["margin"] == pytest.approx(expected["margin"], rel=5e-2, abs=1e-3)


@pytest.mark.quick("adapters of dpo", "simpo")
@pytest.mark.parametrize(
    ("section", "more"),
    [
        ("dpo", ["model.lora.rank=4", "optim.lr=1e-2"]),
        ("reward_model", ["model.lora.rank=4", "optim.lr=1e-2"]),
        ("dpo", ["dpo.loss=simpo", "dpo.beta=2", "dpo.margin=0.5", "optim.lr=1e-3"]),
    ],
    ids=["adapters of dpo", "adapters of a reward model", "simpo"],
)
def test_the_loss_falls(folder, section, more):
    name = f"{section}-{len(more)}"
    trained = run(folder, section, name, *more, settings=["batch=8", "steps=6"])
    losses = [one["learner/loss"] for one in jobs.metrics(trained) if "learner/loss" in one]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_reward_model_learns_labels_of_single_replies(folder):
    rows = []
    for k in range(16):
        messages = []
        for bright in (k % 2, 1 - k % 2):
            said = ["dark", "bright"][(k // 2 + bright) % 2]
            messages += [
                {"role": "user", "content": "<image>bright or dark?"},
                {"role": "assistant", "content": said},
            ]
        right = [((k // 2 + bright) % 2) == bright for bright in (k % 2, 1 - k % 2)]
        images = [f"{k % 2}.png", f"{1 - k % 2}.png"]
        rows.append({"messages": messages, "images": images, "labels": right})
    data = write_jsonl(folder / "labels.jsonl", rows)
    trained = run(
        folder, "reward_model", "labels", f"reward_model.train.data={data}",
        "reward_model.per_turn=true", "reward_model.steps=40", "reward_model.batch=4",
        "optim.lr=3e-3",
    )  # fmt: skip
    assert trained.summary["before"]["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert trained.summary["after"]["accuracy"] == 1.0
    assert trained.summary["after"]["count"] == 8


CASES = [(bright, reply) for bright in (0, 1) for reply in ("dark", "bright")]


def said_about(bright, reply):
    """The inputs of a reward function for one episode of one turn."""
    image = np.asarray(picture(20 + 200 * bright))
    return {
        "chat_messages": [
            {"role": "user", "content": "<image>bright or dark?"},
            {"role": "assistant", "content": reply},
        ],
        "screens": [image],
        "images": [image],
    }


def test_a_reward_model_scores_episodes_as_the_learner_did(learned):
    section, trained = learned
    if section == "dpo":
        with pytest.raises(ConfigError, match=r"is not a reward model, as it has no score\.weight"):
            TrainedReward(str(trained.path))
        return
    inputs = [said_about(*case) for case in CASES]
    rows = TrainedReward(str(trained.path))(inputs)
    rewards = [row["overall"] for row in rows]
    right, wrong = np.mean([rewards[0], rewards[3]]), np.mean([rewards[1], rewards[2]])
    after = trained.summary["after"]
    assert right == pytest.approx(after["reward_chosen"], rel=0.05, abs=0.05)
    assert wrong == pytest.approx(after["reward_rejected"], rel=0.05, abs=0.05)
    named = RewardConfig(function="model", kwargs={"path": str(trained.path)})
    functions, episode = RewardFunctions([named]), episode_of(TICKET, turns=1)
    for one, reward in zip(inputs, rewards, strict=True):
        shown, reply = (message["content"] for message in one["chat_messages"])
        seen = tuple(one["screens"])
        turn = replace(episode.turns[0], shown=shown, reply=reply, images=seen)
        scored = functions.score(replace(episode, instructions="", turns=(turn,)))
        assert scored.reward == pytest.approx(reward, abs=1e-4)


@pytest.mark.slow
def test_a_served_reward_model_gives_the_same_rewards(learned):
    section, trained = learned
    if section == "dpo":
        return
    inputs = [said_about(*case) for case in CASES]
    with jobs.reward_server(trained.path) as url:
        served = Remote(url, images=True)(inputs)
        (blind,) = Remote(url)(inputs[:1])
        chat = "<|im_start|>user\nbright or dark?<|im_end|>\n<|im_start|>assistant\n"
        query = f"{chat}dark<|im_end|>"
        request = urllib.request.Request(
            f"{url}/get_reward",
            json.dumps({"query": [query], "prompts": [chat], "labels": [None]}).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            (rendered,) = json.loads(answer.read())["rewards"]
    here = TrainedReward(str(trained.path))
    assert served == [{"overall": pytest.approx(row["overall"], abs=1e-4)} for row in here(inputs)]
    assert "has 1 images, but 0 were sent" in blind["error"]
    text = [{"role": "user", "content": "bright or dark?"}, inputs[0]["chat_messages"][1]]
    assert rendered == pytest.approx(here([{"chat_messages": text}])[0]["overall"], abs=1e-4)


@pytest.mark.parametrize(
    ("section", "setting", "said"),
    [
        ("dpo", "dpo.beta=0", r"dpo\.beta=0.*above 0"),
        ("dpo", "dpo.loss=orpo", r"dpo\.loss=orpo: must be one of 'dpo', 'ipo'"),
        ("dpo", "dpo.label_smoothing=0.5", "below 0.5"),
        ("reward_model", "reward_model.center=-1", "must not be below 0"),
        ("reward_model", "reward_model.per_turn=true", "no column is named messages"),
    ],
)
def test_bad_settings_are_refused(folder, section, setting, said):
    with pytest.raises(ConfigError, match=said):
        run(folder, section, "bad", setting)


def test_a_run_is_resumed_only_by_the_command_that_started_it(learned, folder):
    section, trained = learned
    with pytest.raises(
        ConfigError, match=rf"is a run of agentrl {TRAINERS[section][0]}; resume it"
    ):
        agentrl.sft("", resume=trained.path)
    with pytest.raises(ConfigError, match=rf"resume it with agentrl {TRAINERS[section][0]} --resu"):
        run(folder, section, trained.name)


def test_a_reward_model_cannot_write_replies(learned, folder, capsys):
    section, trained = learned
    if section == "dpo":
        return
    config, overrides = arguments(folder, "dpo", "dry")
    command = ["dpo", str(config), *overrides, f"model.path={trained.path}/model", "--dry-run"]
    assert cli.run(command) == 2
    assert "is a reward model, which cannot generate replies" in capsys.readouterr().err


def test_a_dry_run_counts_the_pairs(folder, capsys):
    config, overrides = arguments(folder, "dpo", "dry")
    assert cli.run(["dpo", str(config), *overrides, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "training examples: 18" in shown
    assert "held-out examples: 6" in shown
