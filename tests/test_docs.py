"""The pages under docs/ say what the code does: their tables are its own, their examples run."""

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import gymnasium
import numpy as np
import pytest

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.players.player import scripted_reply
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.algorithms.core.trajectories import Trajectories
from agentrl.cli import run as agentrl
from agentrl.config import AlgorithmConfig, ImportanceConfig, KLConfig, load
from agentrl.extension_points import ALGORITHM, LOSS
from agentrl.replay import Filter, RecordedEpisode, Summary
from agentrl.training.evaluation.held_out_evaluation import Evaluation
from agentrl.types import Episode, Message, Observation, ScoredEpisode, Turn

DOCS = Path(__file__).parents[1] / "docs"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"(?:#|\{#) (\w+\.\w+)")


def blocks(page, language):
    """The fenced blocks of a page in one language, in their order."""
    text = (DOCS / page).read_text()
    return [code for kind, code in _FENCE.findall(text) if kind == language]


def name_of(code):
    """The file name in a block's first line; None for a fragment of a script."""
    found = _NAME.match(code)
    return found and found[1]


def named(page, language, name):
    """The block of a page that is a file of this name."""
    (code,) = [code for code in blocks(page, language) if name_of(code) == name]
    return code


@pytest.fixture
def folder(tmp_path):
    """The files shown on the pages of extending/, in a user's folder."""
    for page in (DOCS / "extending").glob("*.md"):
        for language in ("python", "yaml", "jinja"):
            for code in blocks(page, language):
                if name := name_of(code):
                    (tmp_path / name).write_text(code)
    return tmp_path


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def maker(name):
    """The module of docs/ that writes a page's tables."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make


TABLES = ["make_configuration", "make_algorithms", "make_metrics", "make_porting"]


@pytest.mark.parametrize("name", TABLES)
def test_generated_tables_are_up_to_date(name):
    make = maker(name)
    assert make.PAGE.read_text() == make.page(), f"run: python docs/{name}.py"


def test_every_part_of_an_algorithm_is_documented_and_its_tests_exist():
    make = maker("make_algorithms")
    for section, setting, rows in (
        (AlgorithmConfig, "aggregate", make.AGGREGATES),
        (ImportanceConfig, "kind", make.CORRECTIONS),
        (KLConfig, "estimate", make.KL_FORMULAS),
    ):
        hint = get_type_hints(section)[setting]
        choices = {one for part in get_args(hint) for one in get_args(part) or (part,)}
        assert set(rows) == choices - {NoneType}, setting
    for point in (ALGORITHM, LOSS):
        for extension in point.extensions():
            found = point.resolve(extension.name)
            assert all((found.about, found.source, found.formula)), extension.name
    by_hand = " ".join(rows for invariant, rows, _ in make.TESTS if invariant == "by hand")
    for extension in (*ALGORITHM.extensions(), *LOSS.extensions()):
        assert f"`{extension.name}`" in by_hand, extension.name
    for _, _, test in make.TESTS:
        file, name = test.split("::")
        assert f"def {name}(" in (DOCS.parent / "tests" / file).read_text(), test


def test_every_field_that_algorithms_and_losses_are_given_is_documented():
    for kind, prefix, page in (
        (Trajectories, "", "algorithm.md"),
        (LossInputs, "inputs.", "policy_loss.md"),
    ):
        text = (DOCS / "extending" / page).read_text()
        for field in fields(kind):
            assert f"`{prefix}{field.name}`" in text, field.name


def test_documented_overrides_are_accepted():
    merged = load("number_game", ["warm_start.phase_weights={final: 1.0}"])
    assert merged.warm_start.phase_weights == {"reveal": 0.15, "final": 1.0}
    assert load("number_game", ["warm_start=null"]).warm_start is None
    assert load("number_game", ["devices.source=['0123456789']"]).devices.source == ["0123456789"]


def test_the_documented_custom_game_passes_a_dry_run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert agentrl(["train", "my_game.yaml", "--dry-run"]) == 0
    assert "LargerNumber-v0" in capsys.readouterr().out


@pytest.mark.slow
def test_a_gymnasium_environment_is_trained_from_yaml_alone(tmp_path):
    code = named("environments.md", "yaml", "frozen_lake.yaml")
    (tmp_path / "frozen_lake.yaml").write_text(code.replace("steps: 100", "steps: 2"))
    said = run(tmp_path, "-m", "agentrl", "play", "frozen_lake.yaml", "--policy", "random")
    assert "mind the holes" in " ".join(said.split())
    assert "You are at row 0, column 0." in said
    settings = ["train.steps=1", "rollout.group_size=4", "eval.episodes=2", "run.name=it"]
    run(tmp_path, "-m", "agentrl", "train", "frozen_lake.yaml", *settings)
    assert (tmp_path / "runs" / "it" / "summary.json").is_file()


def test_the_documented_player_of_an_environment_plays_well():
    """It reads the observation, as the environment says nothing else."""
    exec(named("environments.md", "python", "my_players.py"), written := {})
    env, names = gymnasium.make("CliffWalking-v1"), ["up", "right", "down", "left"]
    translator = SpaceTranslator(env.action_space, names=names)
    observation, info = env.reset(seed=1)
    total, terminated = 0, False
    while not terminated:
        reply = scripted_reply(written["Expert"](), observation, info, np.random.default_rng(0))
        step = env.step(translator.to_action(reply))
        observation, reward, terminated, _, info = step
        total += reward
    assert total == -13


def test_the_documented_custom_data_set_is_evaluated(folder):
    run(folder, "make_questions.py")
    job = ("my_questions.yaml", "--policy", "expert", "--episodes", "4", "--json")
    said = run(folder, "-m", "agentrl", "eval", *job, "eval.baselines=[]")
    found = json.loads(said)
    assert (found["accuracy"], found["reward/compute_score"]) == (1.0, 1.2)
    assert found["reward/compute_score/short"] == 1.0


def test_every_row_of_the_page_of_faults_names_a_test_that_exists():
    rows = [
        row.rstrip(" |").rpartition("| ")[2]
        for row in (DOCS / "faults.md").read_text().splitlines()
        if row.startswith("| ") and not row.endswith("| test |")
    ]
    assert len(rows) > 40
    for named in rows:
        file, name = named.split("::")
        text = (DOCS.parent / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), named


def test_every_field_of_the_public_types_is_explained():
    public = (Episode, Turn, ScoredEpisode, Message, Observation, Evaluation)
    for kind in (*public, Filter, RecordedEpisode, Summary):
        (node,) = ast.parse(inspect.getsource(kind)).body
        for field, words in maker("make_configuration")._fields(node):
            assert words, f"{kind.__name__}: {ast.unparse(field)} has no docstring"


def test_every_message_of_the_page_on_troubleshooting_is_printed_somewhere():
    files = (f for name in ("agentrl", "virtual_phone") for f in (DOCS.parent / name).rglob("*.py"))
    trees = [ast.parse(file.read_text()) for file in files]
    constants = [n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    printed = "\n".join(" ".join(one.split()) for one in constants if isinstance(one, str))
    rows = [row for row in (DOCS / "troubleshooting.md").read_text().splitlines() if "|" in row]
    messages = [code for row in rows for code in re.findall("`(.+?)`", row.split(" | ")[0])]
    assert len(messages) > 50
    for message in messages:
        for part in message.split("..."):
            assert part.strip(" :,;()") in printed, message


PAGES = [
    *(str(page.relative_to(DOCS)) for page in (*DOCS.glob("*.md"), *DOCS.glob("extending/*.md"))),
    "../README.md",
    "../CONTRIBUTING.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_links_point_to_existing_files(page):
    file = DOCS / page
    for target in re.findall(r"\]\(([^)#:]+)\)", file.read_text()):
        assert (file.parent / target).exists(), target


def test_every_function_on_the_paths_through_the_code_is_in_the_file_of_its_row():
    text = (DOCS.parent / "CONTRIBUTING.md").read_text()
    sections = re.findall(r"^## The path of .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    rows = [line.split(" | ") for part in sections for line in part.splitlines() if "](" in line]
    rows = [row for row in rows if len(row) == 3]
    assert len(rows) > 30
    for _, functions, link in rows:
        (path,) = re.findall(r"\((.+?)\)", link)
        code = (DOCS.parent / path).read_text()
        for name in re.findall(r"(\w+)`", functions):
            defined = rf"(def|class) {name}\b|^ +{name} = "
            assert re.search(defined, code, re.MULTILINE), (path, name)
