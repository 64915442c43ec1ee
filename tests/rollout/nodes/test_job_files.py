"""The user's files that a job needs, and how actors find copies of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import user_code
from agentrl.cluster import node_files
from agentrl.cluster.node_files import FilesOfNode
from agentrl.config import Config, EnvConfig, RewardConfig, RunConfig
from agentrl.rollout.nodes import job_files
from agentrl.rollout.nodes.job_files import JobOnNode, free_texts, local_folders


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Create a typical user's project, in which the job is started."""
    root = tmp_path / "project"
    for name, text in {
        "code/my_rewards.py": "import my_words\ndef exact(episode): return my_words.ONE",
        "code/my_words.py": "ONE = 1.0",
        "code/__pycache__/my_words.pyc": "",
        "code/.git/config": "",
        "code/venv/pyvenv.cfg": "",
        "code/venv/lib.py": "",
        "code/runs/one/config.yaml": "",
        "code/runs/one/episodes/x.jsonl": "",
        "data/train.jsonl": '{"question": "1 + 1", "answer": "2", "image": "images/a.png"}\n',
        "data/images/a.png": "a",
        "more/test.csv": "b",
        "train/unrelated": "",
        "prompts/short.jinja": "{{ instructions }}",
        "prompts/secret": "",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield root
    for name in ("my_rewards", "my_words"):
        sys.modules.pop(name, None)


@pytest.fixture
def job(project):
    return Config(
        env=EnvConfig(
            kwargs={"data": {"train": "data/train.jsonl", "eval": f"{project}/more/test.csv"}},
            translator_kwargs={"mode": "train", "version": "1.0"},
            prompt="prompts/short.jinja",
        ),
        rewards=[RewardConfig(function="code/my_rewards.py:exact")],
        run=RunConfig(dir="runs"),
    )


def folders_of(job: Config) -> dict[Path, list[str]]:
    return local_folders(job.to_dict(), free_texts(job))


def test_code_data_and_templates_travel_with_what_they_may_use(project, job):
    found = {folder: sorted(names) for folder, names in folders_of(job).items()}
    assert found == {
        project / "code": ["my_rewards.py", "my_words.py"],
        project / "data": ["images/a.png", "train.jsonl"],
        project / "more": ["test.csv"],
        project / "prompts": ["short.jinja"],
    }


def test_the_largest_folder_is_listed_up_to_the_limit(project, job, monkeypatch):
    monkeypatch.setattr(job_files, "MAX_FILES", 1)
    assert len(folders_of(job)[project / "data"]) == 2


def test_code_that_is_installed_stays(project):
    config = Config(
        rewards=[RewardConfig(function="pathlib:Path"), RewardConfig(function="yaml:dump")]
    )
    assert folders_of(config) == {}


def test_imported_modules_of_the_current_folder_travel(project, monkeypatch):
    (project / "kit").mkdir()
    (project / "kit" / "__init__.py").touch()
    (project / "kit" / "scores.py").write_text("def score(episode): return 0.0")
    config = Config(rewards=[RewardConfig(function="kit.scores:score")])
    user_code.load("kit.scores:score")
    try:
        assert folders_of(config) == {project / "kit": ["__init__.py", "scores.py"]}
    finally:
        for name in ("kit", "kit.scores"):
            sys.modules.pop(name)


FIND = """
import json, sys
from agentrl.data.prompt_templates import render_instructions
from agentrl.user_code import load
from agentrl.rollout.nodes.job_files import JobOnNode
from pathlib import Path

tree, folder, root, absolute = json.loads(sys.argv[1])
config = JobOnNode(tree, "digest", Path(folder), root and Path(root)).open()
for reference in (config.rewards[0].function, absolute):
    assert load(reference)(None) == 1.0
for path in config.env.kwargs["data"].values():
    print(Path(path).read_text().strip())
print(render_instructions(config.env.prompt, "rules"))
"""


def test_an_actor_finds_the_copies_as_it_would_the_files(project, job, tmp_path, monkeypatch):
    monkeypatch.setattr(node_files.tempfile, "tempdir", str(tmp_path))
    node, places = FilesOfNode(), {}
    for folder, names in folders_of(job).items():
        wanted = node.list(folder, names)
        place, complete = node.prepare(folder.name, wanted, True, True)
        assert not complete
        for name in names:
            node.write(name, node.read(folder / name, 0)[0])
        node.finish()
        assert node.list(place, names) == wanted
        places[folder] = place
    root = node.mirror(places)
    project.rename(tmp_path / "gone")
    task = [job.to_dict(), str(project), str(root), f"{project}/code/my_rewards.py:exact"]
    found = subprocess.run(
        [sys.executable, "-c", FIND, json.dumps(task)],
        capture_output=True, text=True, cwd="/", timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[1:] == ["b", "rules"]
    assert "1 + 1" in found.stdout
    node.close()
    assert not root.exists()
    assert (places[project / "code"] / "my_words.py").is_file()


def test_a_node_with_the_files_uses_them_from_the_folder_of_the_job(project, job, monkeypatch):
    monkeypatch.chdir("/")
    tree = job.to_dict()
    assert JobOnNode(tree, job.digest(), project).open() == job
    assert Path.cwd() == project
    assert os.path.exists(job.env.kwargs["data"]["train"])


def test_an_edited_line_in_the_middle_of_a_file_is_noticed(tmp_path):
    file, node = tmp_path / "rows.jsonl", FilesOfNode()
    file.write_bytes(b"0" * 5_000_000)
    before = node.list(tmp_path, ["rows.jsonl"])
    file.write_bytes(b"0" * 2_500_000 + b"1" + b"0" * 2_499_999)
    assert node.list(tmp_path, ["rows.jsonl"]) != before
