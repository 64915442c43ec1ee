"""`agentrl init` and `agentrl schema`, judged by a dry run and by the jsonschema package."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator

from agentrl import cli
from agentrl import config as configuration
from agentrl.config.json_schema import json_schema
from agentrl.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SLOW = pytest.mark.slow
REAL = "Qwen/Qwen2.5-VL-3B-Instruct"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(json_schema())
    return Draft202012Validator(json_schema())


def test_every_packaged_configuration_fits_the_schema(validator: Draft202012Validator) -> None:
    for file in CONFIGS:
        found = [error.message for error in validator.iter_errors(yaml.safe_load(file.read_text()))]
        assert not found, file
    assert not list(validator.iter_errors(configuration.load("number_game").to_dict()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"training": {"steps": 3}},
        {"train": {"stpes": 3}},
        {"train": {"steps": "many"}},
        {"train": {"mode": "asynchronous"}},
        {"env": {"max_turns": 0}},
        {"env": {"max_turns": 1_000_000}},
        {"optim": {"lr_final_ratio": 2}},
        {"rewards": [{"weight": "much"}]},
        {"algorithm": {"name": "grpo", "discuont": 0.9}},
        {"algorithm": {"discount": 1.5}},
        {"model": {"lora": {"rank": -1}}},
    ],
)
def test_what_a_job_refuses_does_not_fit_the_schema_either(
    wrong: dict[str, Any], validator: Draft202012Validator
) -> None:
    assert list(validator.iter_errors(wrong))
    with pytest.raises(ConfigError):
        configuration.from_dict(wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"algorithm": "grpo", "sampling": "solve_rate"},
        {"algorithm": {"name": "mine.py:Mine", "own_setting": 3}},
        {"seed": "${oc.env:SEED}", "devices": {"source": "???"}},
        {"optim": {"lr": "1e-5"}, "run": {"keep_gb": None}, "logging": [{"name": "wandb"}]},
    ],
)
def test_what_a_job_accepts_fits_the_schema(
    right: dict[str, Any], validator: Draft202012Validator
) -> None:
    assert not list(validator.iter_errors(right))


@pytest.mark.slow
def test_the_bounds_of_the_schema_are_those_of_jobs() -> None:
    checked = 0
    for name, section in json_schema()["properties"].items():
        for key, one in section.get("properties", {}).items():
            if one.get("default") is None or "exclusiveMinimum" not in one:
                continue
            with pytest.raises(ConfigError):
                configuration.load("number_game", [f"{name}.{key}=0"])
            checked += 1
    assert checked > 10


def test_the_schema_describes_settings_and_is_written(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "agentrl.schema.json"
    assert cli.run(["schema", "--out", str(out)]) == 0
    assert "yaml-language-server: $schema=" in capsys.readouterr().out
    turns = json.loads(out.read_text())["properties"]["env"]["properties"]["max_turns"]
    assert turns["description"] == "Number of turns after which an episode is truncated."
    assert (turns["exclusiveMinimum"], turns["maximum"]) == (0, 100_000)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--env", "NumberGame-v0", "--model", "tiny", "--on", "cpu"], marks=SLOW),
        ["--data", "rows.jsonl", "--model", "tiny", "--on", "cpu"],
        ["--data", "rows.jsonl", "--model", REAL, "--on", "gpu"],
    ],
)
def test_a_written_configuration_passes_a_dry_run(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    validator: Draft202012Validator,
) -> None:
    monkeypatch.setattr("agentrl.training.plan.trial_episodes._BUDGET_S", 0.0)  # playing takes long
    # As on a machine with the memory and the time for models of billions of parameters.
    monkeypatch.setattr("agentrl.training.plan.dry_run.misfits_without_gpus", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(200)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.run(["init", "my_job/config.yaml", *options]) == 0
    assert "agentrl train my_job/config.yaml --dry-run" in capsys.readouterr().out
    assert not list(validator.iter_errors(yaml.safe_load(Path("my_job/config.yaml").read_text())))
    assert cli.run(["train", "my_job/config.yaml", "--dry-run"]) == 0
    assert "All checks pass" in capsys.readouterr().out
    assert cli.run(["init", "my_job/config.yaml", *options]) == 2  # it exists


def test_init_names_columns_that_a_data_set_lacks(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows.csv").write_text("frage,answer\nWhat is 1 + 1?,2\n")
    file, data = str(tmp_path / "job.yaml"), str(tmp_path / "rows.csv")
    assert cli.run(["init", file, "--data", data, "--model", "tiny", "--on", "cpu"]) == 0
    out = capsys.readouterr().out
    assert (
        f"wrote {file}\ncorrect this before you train: env.kwargs: data={data}: no column is named "
        in out
    )
    assert "in keys={problem: ...}. The data has: frage, answer\n" in out


def test_init_asks_three_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init", str(tmp_path / "job.yaml"), "--model", "tiny"]) == 2
    assert "required: --env or --data, --model and --on" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answers = iter(["Sokoban-v0", "tiny", "cpu"])
    monkeypatch.setattr("typer.prompt", lambda text, default: next(answers))
    assert cli.run(["init", str(tmp_path / "job.yaml")]) == 0
    written, packaged = map(configuration.load, (tmp_path / "job.yaml", "sokoban"))
    # Without these, the tiny model reads hundreds of tokens of instructions in every turn.
    for section in ("model", "env", "devices", "warm_start"):
        assert getattr(written, section) == getattr(packaged, section)
    assert written.rollout.max_context == packaged.rollout.max_context
    assert written.eval.kwargs == packaged.eval.kwargs
    monkeypatch.setattr("typer.prompt", lambda text, default: "Sokobann-v0")
    assert cli.run(["init", str(tmp_path / "two.yaml"), "--model", "tiny", "--on", "cpu"]) == 2
    assert "Sokoban-v0" in capsys.readouterr().err

    def interrupted(text: str, default: str) -> str:
        raise typer.Abort

    monkeypatch.setattr("typer.prompt", interrupted)
    assert cli.run(["init", str(tmp_path / "two.yaml")]) == 130
    assert not (tmp_path / "two.yaml").exists()
