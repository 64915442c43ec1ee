"""Rows of a data set that are too long for the model."""

import json
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.job_plan import plan_training
from agentrl.training.plan.long_prompts import skip_long_prompts
from agentrl.training.plan.trial_episodes import check_lengths


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Ten short questions, of which every fifth is far too long."""
    rows = [
        {"problem": f"{n} + 1? {'Think twice. ' * 2000 if n % 5 == 2 else ''}", "answer": n + 1}
        for n in range(10)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def shortened(config: configuration.Config, model: Path) -> configuration.Config:
    return skip_long_prompts(plan_rollouts(config), model).settings


def job(questions: Path, *overrides: str) -> configuration.Config:
    settings = {
        "env": {"id": "QA-v0", "kwargs": {"data": str(questions)}},
        "model": {"path": "tiny"},
        "rollout": {"launcher": "local", "max_context": 1000, "max_new_tokens": 100},
    }
    return configuration.resolve(configuration.from_dict(settings), overrides)


def test_long_rows_are_refused_by_name_before_a_job_starts(questions: Path) -> None:
    config = job(questions)
    with pytest.raises(ConfigError) as refused:
        check_lengths(plan_rollouts(config), config.warm_start, [])
    message = str(refused.value)
    assert message.startswith("2 of 10 prompts leave no room for a reply: ")
    assert "line 3: " in message
    assert "line 8: " in message
    assert "At most 900 tokens fit" in message
    assert "env.kwargs.on_long=skip" in message


def test_long_rows_are_skipped_if_configured(
    questions: Path, tiny_vlm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = job(questions, "env.kwargs.on_long=skip")
    shorter = shortened(config, tiny_vlm)
    assert shorter.env.kwargs["skip_rows"] == [2, 7]
    assert "2 of 10 prompts leave no room" in caplog.text
    assert "They are skipped" in caplog.text
    assert resolve_env(shorter.env).check_arguments() == 8
    assert config.env.kwargs.get("skip_rows") is None
    assert shortened(shorter, tiny_vlm) == shorter


def test_samplers_count_no_skipped_rows(questions: Path, tiny_vlm: Path) -> None:
    overrides = ("env.kwargs.on_long=skip", "sampling.name=solve_rate")
    plan = plan_training(job(questions, *overrides))
    assert [one.count for one in plan.task_sets] == [10]
    assert [one.count for one in plan.without_long_prompts(tiny_vlm).task_sets] == [8]


def test_held_out_rows_are_measured_by_themselves(questions: Path, tiny_vlm: Path) -> None:
    short = questions.with_name("short.jsonl")
    short.write_text('{"problem": "1 + 1?", "answer": 2}\n' * 3)
    skip = "env.kwargs.on_long=skip"
    held_out = shortened(job(questions, skip, f"eval.kwargs.data={short}"), tiny_vlm)
    assert held_out.env.kwargs["skip_rows"] == [2, 7]
    assert held_out.eval.kwargs == {"data": str(short), "skip_rows": []}
    trained = shortened(job(short, skip, f"eval.kwargs.data={questions}"), tiny_vlm)
    assert "skip_rows" not in trained.env.kwargs
    assert trained.eval.kwargs["skip_rows"] == [2, 7]


def test_a_data_set_of_long_rows_alone_is_refused(questions: Path, tiny_vlm: Path) -> None:
    overrides = ("env.kwargs.on_long=skip", "rollout.max_context=101")
    with pytest.raises(ConfigError, match="10 of 10 prompts leave no room"):
        shortened(job(questions, *overrides), tiny_vlm)


def test_generated_questions_need_no_such_check(tiny_vlm: Path) -> None:
    config = configuration.load("counting", ["rollout.max_context=500"])
    assert shortened(config, tiny_vlm) == config


def test_each_environment_of_a_mixture_has_its_own_long_rows(
    questions: Path, tiny_vlm: Path
) -> None:
    short = questions.with_name("short.jsonl")
    short.write_text('{"problem": "1 + 1?", "answer": 2}\n' * 3)
    mixture = [
        {"name": "short", "env": {"kwargs": {"data": str(short)}}},
        {"name": "long", "env": {"kwargs": {"max_rows": 5}}},
    ]
    config = job(questions, "env.kwargs.on_long=skip", f"mixture={json.dumps(mixture)}")
    jobs = shortened(config, tiny_vlm).environments()
    skipped = {name: one.env.kwargs["skip_rows"] for name, one in jobs.items()}
    assert skipped == {"short": [], "long": [2]}
    assert [resolve_env(jobs[name].env).check_arguments() for name in ("short", "long")] == [3, 4]
