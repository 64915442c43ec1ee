"""Pipelines of several jobs: the model is carried over, finished stages are kept."""

import json
import shutil

import pytest
import yaml

from agentrl import cli
from agentrl.errors import ConfigError
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.pipeline import check_pipeline, report_of, run_pipeline
from tests.data.rows import write_jsonl

SMALL = {
    "logging": ["file"],
    "rollout": {
        "launcher": "local", "engine": "hf", "groups": 2, "group_size": 2, "max_new_tokens": 4,
        "seed_per": "group",
    },
    "eval": {"episodes": 2, "every": 0},
    "optim": {"lr": 1e-3},
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    questions = [{"problem": f"{k} + {k}?", "answer": str(2 * k)} for k in range(12)]
    data = str(write_jsonl(folder / "sums.jsonl", questions))
    chats = [
        {
            "messages": [
                {"role": "user", "content": row["problem"]},
                {"role": "assistant", "content": row["answer"]},
            ]
        }
        for row in questions
    ]
    learned = str(write_jsonl(folder / "chats.jsonl", chats))
    tree = SMALL | {
        "run": {"dir": str(folder / "runs"), "name": "sums"},
        "stages": [
            {"name": "copy", "job": "sft", "sft": {"train": {"data": learned}, "batch": 6}},
            {
                "name": "rl",
                "env": {"id": "QA-v0", "kwargs": {"data": data, "grade": "exact"}},
                "warm_start": None,
                "train": {"steps": 1},
            },
            {
                "name": "distil",
                "job": "sft",
                "data": {"from": "rl", "success": False},
                "sft": {"steps": 1, "batch": 2},
            },
        ],
    }
    path = folder / "sums.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture(scope="module")
def played(file):
    return run_pipeline(file, overrides=["copy.sft.steps=2", "run.name=other"])


def test_each_stage_starts_from_the_model_of_the_one_before(played):
    assert played.name == "other"
    runs = [played / name for name in ("1-copy", "2-rl", "3-distil")]
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in runs]
    assert [config["model"]["path"] for config in configs] == [
        "tiny", *(str(run / "model") for run in runs[:2])
    ]  # fmt: skip
    assert configs[0]["sft"]["steps"] == 2
    data = [json.loads(line) for line in (played / "3-distil-data.jsonl").read_text().splitlines()]
    assert {row["split"] for row in data} == {"train"}
    assert all(row["messages"][-1]["role"] == "assistant" for row in data)
    report = report_of(played)
    assert [(row["stage"], row["job"], row["steps"]) for row in report] == [
        ("copy", "sft", 2), ("rl", "train", 1), ("distil", "sft", 1)
    ]  # fmt: skip
    assert "reward" in report[1]["after"]
    assert json.loads((played / "pipeline.json").read_text()) == report


def test_a_pipeline_continues_with_the_stage_that_is_not_finished(played, capsys):
    times = {run: run.stat().st_mtime for run in played.glob("[12]-*/summary.json")}
    shutil.rmtree(played / "3-distil")
    assert cli.run(["pipeline", str(played), "--resume"]) == 0
    shown = capsys.readouterr().out
    assert "stage distil: agentrl sft" in shown
    assert "stage rl: agentrl" not in shown
    assert {run: run.stat().st_mtime for run in times} == times
    assert checkpoint_store.latest(played / "3-distil") is not None


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "stages must have different names"),
        ([{"job": "sft"}], "each must have a name"),
        ([{"name": "a", "job": "stf"}], r"job='stf'.*did you mean 'sft'"),
        ([{"name": "a"}, {"name": "a"}], "different names"),
        ([{"name": "a", "data": {"from": "b"}}], "takes none"),
        (
            [{"name": "a", "job": "sft", "data": {"from": "b"}}],
            "'b', which is not an earlier",
        ),
        (
            [{"name": "a", "job": "sft", "data": {"from": "a", "sucess": 1}}],
            "did you mean 'success'",
        ),
        ([{"name": "a", "train": {"stepz": 1}}], "stepz"),
        ([{"name": "a", "job": []}], r"job=\[\]: known"),
        ([{"name": "a", "config": 5}], "config=5: must be a file or a name"),
        ([{"name": "sft"}], "name of a section"),
        ([{"name": "a" * 65}], "up to 64 letters"),
        (
            [{"name": "a", "job": "sft"}, {"name": "b", "job": "sft", "data": {"from": "a"}}],
            "records no episodes",
        ),
        (
            [{"name": "a", "rewards": [{"function": "${stage:rm}"}]}],
            "'rm', which is not an earlier",
        ),
        ([{"name": "a", "job": "dpo", "dpo": {"train": {"data": "no.jsonl"}}}], "no such file"),
    ],
)
def test_a_mistake_in_any_stage_is_found_before_the_first_starts(tmp_path, stages, said):
    path = tmp_path / "stages.yaml"
    path.write_text(yaml.safe_dump({"run": {"dir": str(tmp_path / "runs")}, "stages": stages}))
    with pytest.raises(ConfigError, match=said):
        run_pipeline(path)
    assert not (tmp_path / "runs").exists()


def test_a_mistyped_stage_of_an_override_is_named(file):
    with pytest.raises(ConfigError, match=r"distill: .* \(did you mean 'distil'\?\)"):
        check_pipeline(file, ["distill.sft.steps=3"])


def test_a_dry_run_names_the_stages(file, capsys):
    assert check_pipeline(file) == ["copy", "rl", "distil"]
    assert cli.run(["pipeline", str(file), "--dry-run"]) == 0
    assert "stage distil" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", "file: 3", "{file: {}, where: null}"])
def test_a_damaged_pipeline_is_not_continued(tmp_path, content):
    (tmp_path / "pipeline.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"pipeline\.yaml"):
        run_pipeline("", resume=tmp_path)
    with pytest.raises(ConfigError, match="no such pipeline"):
        run_pipeline("", resume=tmp_path / "none")
