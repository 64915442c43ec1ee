"""Pipelines of several jobs: the model is carried over, finished stages are kept."""

import json
import shutil
from html.parser import HTMLParser

import pytest
import yaml

from agentrl import cli
from agentrl.errors import ConfigError
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.offline.finetuning_methods import SupervisedFinetuning
from agentrl.training.pipeline import check_pipeline, run_pipeline, stored_pipeline
from agentrl.viewer.export import write_pipeline_report
from tests.data.rows import write_jsonl

SMALL = {
    "logging": ["file"],
    "rollout": {
        "launcher": "local", "engine": "hf", "groups": 2, "group_size": 2, "max_new_tokens": 4,
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
                "name": "distill",
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
    return run_pipeline(file, overrides=["copy.sft.steps=2", "run.name=other", "model.path=tiny"])


def test_each_stage_starts_from_the_model_of_the_one_before(played):
    assert played.name == "other"
    runs = [played / name for name in ("1-copy", "2-rl", "3-distill")]
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in runs]
    assert [config["model"]["path"] for config in configs] == [
        "tiny", *(str(run / "model") for run in runs[:2])
    ]  # fmt: skip
    assert configs[0]["sft"]["steps"] == 2
    data = [json.loads(line) for line in (played / "3-distill-data.jsonl").read_text().splitlines()]
    assert {row["split"] for row in data} == {"train"}
    assert all(row["messages"][-1]["role"] == "assistant" for row in data)
    report = stored_pipeline(played).report(played)
    assert [(row["stage"], row["job"], row["steps"]) for row in report] == [
        ("copy", "sft", 2), ("rl", "train", 1), ("distill", "sft", 1)
    ]  # fmt: skip
    assert "reward" in report[1]["after"]
    assert json.loads((played / "pipeline.json").read_text()) == report


def test_a_pipeline_continues_with_the_stage_that_is_not_finished(played, capsys):
    times = {run: run.stat().st_mtime for run in played.glob("[12]-*/summary.json")}
    shutil.rmtree(played / "3-distill")
    with pytest.raises(ConfigError, match=r"have not started .*: distill$"):
        run_pipeline("", overrides=["rl.train.steps=2"], resume=played)
    settings = ["distill.optim.lr=2e-3", "distill.data.success=null"]
    assert cli.run(["pipeline", str(played), "--resume", *settings]) == 0
    shown = capsys.readouterr().out
    assert "stage distill: agentrl sft" in shown
    assert "stage rl: agentrl" not in shown
    assert {run: run.stat().st_mtime for run in times} == times
    assert checkpoint_store.latest(played / "3-distill") is not None
    distilled = yaml.safe_load((played / "3-distill" / "config.yaml").read_text())
    assert distilled["optim"]["lr"] == 2e-3
    assert "report.html" in shown
    with pytest.raises(ConfigError, match="no such stages"):
        run_pipeline("", overrides=settings, resume=played)
    page = (played / "report.html").read_bytes()
    assert cli.run(["pipeline", str(played), "--resume"]) == 0
    assert (played / "report.html").read_bytes() == page


def test_the_report_shows_results_curves_and_differing_settings(played):
    class Page(HTMLParser):
        links, lines, cells = [], [], []

        def handle_starttag(self, tag, attrs):
            found = dict(attrs)
            if tag == "a":
                self.links.append(found["href"])
            if tag == "polyline":
                self.lines.append(found["points"])
            if tag == "td":
                self.cells.append("")

        def handle_data(self, data):
            if self.cells:
                self.cells[-1] += data

    page = Page()
    page.feed(write_pipeline_report(played).read_text())
    assert [(played / link).is_dir() for link in page.links] == [True] * 3
    assert len(page.lines) >= 4
    cells = [cell.strip() for cell in page.cells]
    at = cells.index("reward")  # of two held-out questions, both answered incorrectly
    assert cells[at + 1] == "0.00 (0.00 to 0.66)"
    paths = cells[cells.index("model.path") + 1 :]
    assert paths[:3] == ["", "1-copy/model", "2-rl/model"]


def test_the_report_escapes_what_configurations_contain(played, tmp_path):
    folder = tmp_path / "<script>&"
    shutil.copytree(played, folder)
    file = folder / "2-rl" / "config.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["env"]["kwargs"]["data"] = "</td><script>alert(1)</script>"
    file.write_text(yaml.safe_dump(tree))
    page = write_pipeline_report(folder).read_text()
    assert "<script" not in page
    assert "&lt;/td&gt;&lt;script&gt;" in page


def test_a_pipeline_without_data_for_a_stage_or_interrupted_says_once_how_to_continue(
    played, tmp_path, caplog, monkeypatch
):
    folder = tmp_path / "copy"
    shutil.copytree(played, folder)
    shutil.rmtree(folder / "3-distill")
    with pytest.raises(
        ConfigError, match="stage distill: cannot make data from the episodes of rl"
    ):
        run_pipeline("", overrides=["distill.data.min_reward=5e0"], resume=folder)

    async def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(SupervisedFinetuning, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_pipeline("", overrides=["distill.data.min_reward=0"], resume=folder)
    hints = [line for line in caplog.messages if "--resume" in line]
    assert hints == [f"stopped; resume with: agentrl pipeline --resume {folder}"] * 2


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "stages must have different names"),
        ([{"job": "sft"}], "each stage must be a mapping with a name"),
        ([{"name": "a", "job": "stf"}], r"job='stf'.*did you mean 'sft'"),
        ([{"name": "a"}, {"name": "a"}], "different names"),
        ([{"name": "a", "data": {"from": "b"}}], "only jobs that train on data sets"),
        (
            [{"name": "a", "job": "sft", "data": {"from": "b"}}],
            "'b', which is not an earlier",
        ),
        (
            [{"name": "a", "job": "sft", "data": {"from": "a", "sucess": 1}}],
            "did you mean 'success'",
        ),
        ([{"name": "a", "train": {"stepz": 1}}], "stepz"),
        ([{"name": "a", "job": []}], r"job=\[\]: no such job\. Known: "),
        ([{"name": "a", "config": 5}], "config=5: must be a file or the name of a packaged"),
        ([{"name": "sft"}], "name of a section"),
        ([{"name": "a" * 65}], "at most 64 letters"),
        (
            [{"name": "a", "job": "sft"}, {"name": "b", "job": "sft", "data": {"from": "a"}}],
            "does not record episodes",
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


def test_what_later_stages_name_is_checked_before_the_first_starts(file, tmp_path):
    tree = yaml.safe_load(file.read_text())
    tree["stages"][2]["model"] = {"path": str(tmp_path / "none")}
    path = tmp_path / "stages.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError, match=r"stage distill: model\.path=.*none: no such folder"):
        check_pipeline(path)
    tree["rewards"] = [{"function": "${stage:copy}"}]
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError, match="settings of a single stage"):
        check_pipeline(path)


def test_a_mistyped_stage_of_an_override_is_named(file):
    with pytest.raises(ConfigError, match=r"distil: .* \(did you mean 'distill'\?\)"):
        check_pipeline(file, ["distil.sft.steps=3"])


def test_data_settings_of_a_stage_without_data_are_refused(file):
    with pytest.raises(ConfigError, match="copy: data: must refer to an earlier stage"):
        check_pipeline(file, ["copy.data.success=true"])
    with pytest.raises(ConfigError, match="rl: data: only jobs that train on data sets"):
        check_pipeline(file, ["rl.data.success=true"])


def test_a_dry_run_names_the_stages(file, capsys):
    assert list(check_pipeline(file)) == ["copy", "rl", "distill"]
    assert cli.run(["pipeline", str(file), "--dry-run"]) == 0
    assert "stage distill" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", "file: 3", "{file: {}, where: null}"])
def test_a_damaged_pipeline_is_not_continued(tmp_path, content):
    (tmp_path / "pipeline.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"pipeline\.yaml"):
        run_pipeline("", resume=tmp_path)
    with pytest.raises(ConfigError, match="no such pipeline"):
        run_pipeline("", resume=tmp_path / "none")


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["text_to_figures", "sft_dpo_rl", "rl_distill_rl"])
def test_pipelines_that_come_along_are_run_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(check_pipeline(name)) == 3
    with pytest.raises(ConfigError, match=f"no such file.*Pipelines by name: .*{name}"):
        check_pipeline(f"./{name}")
