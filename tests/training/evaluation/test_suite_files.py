"""Suites in YAML files: what they mean, and what is wrong with those that mean nothing."""

import json
import os
import sys
from pathlib import Path

import pytest

from agentrl.config import Config, EnvConfig, RewardConfig
from agentrl.envs.qa.env import QA
from agentrl.errors import ConfigError
from agentrl.extension_points import SUITE
from agentrl.training.evaluation.suite import SuiteTask, tasks_of
from tests.data.rows import png

OF_THE_HUB = ("superclevr", "geoqa", "math_500", "mmmu", "mathvista", "mathverse")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folders of suites are added
    return tmp_path


def write(text: str) -> str:
    Path("mine.yaml").write_text(text)
    return "mine.yaml"


@pytest.mark.parametrize("name", sorted(set(SUITE.names()) - set(OF_THE_HUB)))
def test_suites_that_come_along_can_be_played(name: str) -> None:
    for task in tasks_of(name):
        config = task.applied_to(Config())
        assert config.eval.episodes >= 20
        assert config.rewards == []


def test_a_task_of_a_data_set_takes_the_arguments_of_its_environment_and_translator(folder) -> None:
    name = write(
        "defaults: {samples: 4}\n"
        "tasks:\n"
        "  - {name: 7, data: rows.jsonl, grade: numeric, style: boxed, category: level,\n"
        "     kwargs: {name: main}, rewards: [matching.numeric, {function: a.py:b, weight: 2}]}\n"
    )
    assert tasks_of(name) == [
        SuiteTask(
            name="7",
            env="QA-v0",
            kwargs={"data": "rows.jsonl", "grade": "numeric", "name": "main"},
            translator_kwargs={"style": "boxed"},
            samples=4,
            max_turns=1,
            category="level",
            rewards=[
                RewardConfig(function="matching.numeric"),
                RewardConfig(function="a.py:b", weight=2),
            ],
        )
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "must have a list of tasks"),
        ("task: []", "unknown key 'task' (did you mean 'tasks'?)"),
        ("tasks: []", "tasks: must be a list of mappings"),
        ("tasks: [lakes]", "tasks[0]: must be a mapping, not 'lakes'"),
        ("tasks: [{env: Snake-v0}]", "tasks[0]: has no name"),
        ("tasks: [{name: a, sampels: 2}]", "('a'): unknown key 'sampels' (did you mean 'samples'"),
        ("tasks: [{name: a, data: x, grad: exact}]", "'grad' (did you mean 'grade'?)"),
        ("tasks: [{name: a, data: x, env: QA-v0}]", "env and data cannot both be set"),
        ("tasks: [{name: a, samples: many}]", "samples: must be a whole number, not 'many'"),
        ("tasks: [{name: a, samples: 0}]", "'a': samples=0 must be at least 1"),
        ("tasks: [{name: a, kwargs: 3}]", "kwargs: must be a mapping"),
        ("tasks: [{name: a, rewards: x}]", "rewards: must be a list, not 'x'"),
        ("tasks: [{name: a, rewards: [{fn: x}]}]", "rewards[0]: must be a function's name"),
        ("tasks: [{name: a, rewards: [{function: x, wait: 1}]}]", "did you mean 'weight'?"),
        ("tasks: [{name: a}, {name: a}]", "two tasks are named 'a'"),
        ("tasks: [{name: a}", "mine.yaml, line 2: cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(folder, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tasks_of(write(text))
    assert reason in str(raised.value)
    assert "mine.yaml" in str(raised.value)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'minigames'.*path/file.yaml"):
        tasks_of("minigame")
    with pytest.raises(ConfigError, match=r"eval\.suite=lost\.yaml: no such file"):
        tasks_of("lost.yaml")


def test_all_models_play_the_same_whatever_their_jobs_play() -> None:
    env = EnvConfig(id="NumberGame-v0", kwargs={"digits": 2}, max_turns=24, history="window:1")
    env.translator_kwargs = {"instruct": False}
    config = Config(env=env, rewards=[RewardConfig(function="env_reward")])
    config.eval.kwargs = {"cards": 4}
    named = SuiteTask(name="x", env="NumberGame-v0", kwargs={"moved": True}).applied_to(config)
    assert (named.env.kwargs, named.rewards) == ({"moved": True}, [])
    assert named.env.translator_kwargs == {"instruct": False}  # how this model is prompted
    own = SuiteTask(name="x", kwargs={"moved": True}, episodes=5).applied_to(config)
    assert own.env.kwargs == {"digits": 2, "cards": 4, "moved": True}
    assert (own.rewards, own.eval.kwargs, own.eval.episodes) == (config.rewards, {}, 5)
    other = SuiteTask(name="x", env="Snake-v0", max_turns=9, first_seed=3).applied_to(config)
    assert (other.env.id, other.env.kwargs, other.env.max_turns) == ("Snake-v0", {}, 9)
    assert (other.env.history, other.eval.first_seed) == ("window:1", 3)
    sampled = SuiteTask(name="x", temperature=0.7, max_new_tokens=9).applied_to(config)
    assert (sampled.rollout.temperature, sampled.rollout.max_new_tokens) == (0.7, 9)


def test_a_data_set_is_played_as_a_whole_and_no_question_twice(folder) -> None:
    rows = [{"question": f"{n}?", "answer": str(n)} for n in range(7)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for episodes, played in ((None, 7), (3, 3), (50, 7)):
        task = SuiteTask(name="x", env="QA-v0", kwargs={"data": "rows.jsonl"}, episodes=episodes)
        assert task.applied_to(Config()).eval.episodes == played


def test_greedy_replies_are_not_sampled_several_times() -> None:
    for task, greedy in ((SuiteTask(name="x", samples=2), True),
                         (SuiteTask(name="x", samples=2, temperature=0.0), False)):  # fmt: skip
        with pytest.raises(ConfigError, match="all greedy replies are the same"):
            task.applied_to(Config(), greedy)


def test_the_suite_of_the_documentation_is_one(folder) -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    tasks = tasks_of(write(page.partition("# mine.yaml\n")[2].partition("```")[0]))
    assert [task.samples for task in tasks] == [4, 4, 4]
    assert (tasks[0].kwargs["grade"], tasks[1].metric, tasks[2].env) == (
        "numeric", "reward", "NumberGame-v0",
    )  # fmt: skip


def hub(name: str, rows: list[dict], split: str = "train", subset: str | None = None) -> None:
    """A data set in the layout of the hub: its images inside of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = Path(name, subset or "data")
    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / f"{split}-00000-of-00001.parquet")
    if subset is not None:
        card = Path(name, "README.md")
        files = f"  data_files:\n  - split: {split}\n    path: {subset}/{split}-*\n"
        before = card.read_text().removesuffix("---\n") if card.is_file() else "---\nconfigs:\n"
        card.write_text(f"{before}- config_name: {subset}\n{files}---\n")


def test_suites_of_the_hub_ask_the_questions_of_their_rows(folder) -> None:
    image = {"bytes": png(), "path": None}
    superclevr = {
        "image": image, "problem": "How many items are there in the image?",
        "solution": "<answer> 3 </answer>",
    }  # fmt: skip
    hub("MMInstruction/SuperClevr_Val", [superclevr] * 3)
    maths = {
        "problem": "1 + 1", "solution": "It is 2.", "answer": "2", "subject": "Algebra",
        "level": 1, "unique_id": "test/1",
    }  # fmt: skip
    hub("HuggingFaceH4/MATH-500", [maths] * 2, "test")
    names = ("superclevr", "math_500")
    counts = {name: tasks_of(name)[0].applied_to(Config()).eval.episodes for name in names}
    assert (counts["superclevr"], counts["math_500"]) == (3, 2)


def first_question(name: str) -> tuple[str, int]:
    """What a suite's first task asks first: the text, and the number of pictures."""
    task = tasks_of(name)[0]
    assert task.translator_kwargs["instruct"] is False
    assert (task.metric, task.temperature) == ("reward", 0.0)
    shown, _ = QA(**task.kwargs).reset(seed=0)
    return shown["text"], len(shown["images"])


def test_suites_of_benchmarks_ask_with_the_prompt_of_the_benchmark(folder) -> None:
    image = {"bytes": png(), "path": None}
    mmmu = {
        "question": "<image 1> Which?", "options": "['x', '<image 2>']", "answer": "B",
        "topic_difficulty": "Easy", "image_1": image, "image_2": image, "image_3": None,
    }  # fmt: skip
    hub("MMMU/MMMU", [mmmu], "validation", "Accounting")
    assert len(tasks_of("mmmu")) == 30
    assert first_question("mmmu") == (
        "<image> Which?\n(A) x\n(B) <image>\n\n"
        "Answer with the option's letter from the given choices directly.",
        2,
    )
    vista = {
        "query": "Hint: ...", "question": "How many?", "image": "images/1.jpg", "choices": None,
        "decoded_image": image, "answer": "5", "answer_type": "integer", "precision": None,
        "metadata": {"task": "figure question answering"},
    }  # fmt: skip
    hub("AI4Math/MathVista", [vista, {**vista, "choices": ["4", "5"]}], "testmini")
    assert first_question("mathvista") == ("<image>Hint: ...", 1)
    verse = {
        "query_cot": "Reason first.", "question": "", "image": image, "answer": "5",
        "question_type": "free-form", "problem_version": "Vision Only",
    }  # fmt: skip
    hub("AI4Math/MathVerse", [verse], "testmini", "testmini")
    assert first_question("mathverse") == ("<image>Reason first.", 1)
    r1v = {
        "image_path": "./Geo170K/images/test/0.png", "question": "Angle A?", "ground_truth": "140°",
    }  # fmt: skip
    for file, held in (("prompts/geoqa_test_prompts.jsonl", json.dumps(r1v).encode()),
                       (r1v["image_path"], png())):  # fmt: skip
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(held)
    assert first_question("geoqa") == (
        "<image>Angle A? Output the thinking process in <think> </think> and final answer (number) "
        "in <answer> </answer> tags.",
        1,
    )
    clevr = {"image": image, "problem": "How many?", "solution": "<answer> 3 </answer>"}
    hub("MMInstruction/SuperClevr_Val", [clevr])
    assert first_question("superclevr") == (
        "<image>How many? First output the thinking process in <think> </think> and final answer "
        "(number) in <answer> </answer> tags.",
        1,
    )


def test_suites_ask_about_the_data_beside_them_even_if_others_have_the_same_name(folder) -> None:
    asked = []
    for name in ("first", "second"):
        own = folder / name
        own.mkdir()
        row = {"problem": name, "answer": "1"}
        (own / "rows.jsonl").write_text(json.dumps(row) + "\n")
        (own / "suite.yaml").write_text("tasks: [{name: a, data: rows.jsonl}]")
        (task,) = tasks_of(str(own / "suite.yaml"))
        asked.append(QA(**task.kwargs).reset(seed=0)[0]["text"])
    assert asked == ["first", "second"]


def test_a_relative_name_means_the_file_of_the_current_folder(folder, monkeypatch) -> None:
    asked = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        monkeypatch.chdir(folder / name)
        Path("rows.jsonl").write_text(json.dumps({"problem": name, "answer": "1"}) + "\n")
        os.utime("rows.jsonl", (1, 1))
        asked.append(QA(data="rows.jsonl").reset(seed=0)[0]["text"])
    assert asked == ["first", "second"]
