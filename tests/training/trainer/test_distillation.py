"""Whole runs of on-policy distillation from another run."""

import json
import shutil

import pytest
import yaml

from agentrl import cli

JOB = {
    "model": {"path": "tiny", "tiny": {"hidden": 32, "layers": 2, "heads": 1, "kv_heads": 1}},
    "env": {
        "id": "FrozenLake-v1", "max_turns": 2,
        "translator_kwargs": {"names": ["left", "down", "right", "up"], "text": "square"},
    },
    "rewards": [{"function": "env_reward"}],
    "rollout": {"engine": "hf", "launcher": "local", "groups": 1, "group_size": 4,
                "concurrency": 4, "max_new_tokens": 4},
    "algorithm": {"name": "opd", "reward_weight": 0.0},
    "optim": {"lr": 1e-3},
    "train": {"steps": 1},
    "eval": {"every": 0, "episodes": 1, "baselines": []},
    "run": {"frames": "none"},
    "logging": ["file"],
}  # fmt: skip


@pytest.mark.slow
def test_on_real_phones_an_unknown_name_is_an_error_at_the_first_reset(
    tmp_path, monkeypatch, capsys
):
    """Here another environment takes the place of one on a phone."""
    for module in ("trainer.trainer", "plan.trial_episodes"):
        monkeypatch.setattr(f"agentrl.training.{module}.is_playable_here", lambda *_: False)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    monkeypatch.chdir(tmp_path)
    text = "algorithm.privileged='chance {prop}'"
    settings = ["algorithm.teacher=self", text, "run.name=it", "eval.baselines=[random]"]
    assert cli.run(["train", "job.yaml", *settings]) == 2
    assert "no entry 'prop' (did you mean 'prob'?)" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "it").exists()  # nothing has been played


def kl_of(run):
    """The divergence from the teacher in each step."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [one["learner/teacher_kl"] for one in lines if "learner/teacher_kl" in one]


@pytest.mark.slow
def test_a_run_or_a_checkpoint_of_it_teaches_another_run(tmp_path, monkeypatch):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    monkeypatch.chdir(tmp_path)

    def train(name, *overrides):
        assert cli.run(["train", "job.yaml", f"run.name={name}", *overrides]) == 0
        return tmp_path / "runs" / name

    # Rewards of random episodes are enough to make another model of it.
    other = train("other", "seed=1", "algorithm=reinforce_pp", "algorithm.entropy_coefficient=1")
    pupil = train("pupil", "algorithm.teacher=runs/other")
    (first,) = kl_of(pupil)
    assert first > 0
    assert not (pupil / "teacher").exists()
    saved = yaml.safe_load((pupil / "config.yaml").read_text())["algorithm"]
    assert saved["teacher"] == str(other)
    (unfinished,) = kl_of(train("early", f"algorithm.teacher={other}/checkpoints/step-00001"))
    assert unfinished == pytest.approx(first, rel=1e-5)
    own = train("own", "algorithm.teacher=self", "algorithm.privileged=chance {prob}")
    assert kl_of(own)[0] != 0
    # The exported checkpoint stays with the run that it is a teacher of.
    shutil.rmtree(other)
    early = tmp_path / "runs" / "early"
    assert (early / "teacher" / "config.json").is_file()
    assert cli.run(["train", str(early), "--resume", "train.steps=3"]) == 0
    assert len(kl_of(early)) == 3
