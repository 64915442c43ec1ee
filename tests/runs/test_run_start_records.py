"""Where and from which code a run was started."""

import platform
import subprocess
from pathlib import Path

import pytest

from agentrl.runs.run_start_records import STARTS_FILE, last_start, record_start


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_start_has_the_host_and_the_commit_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.chdir(tmp_path)
    assert last_start(run) is None
    record_start(run)
    start = last_start(run)
    assert start is not None
    assert (start.host, start.commit, start.code) == (platform.node(), None, "")
    git("init", "--quiet")
    Path("code.py").write_text("x = 1\n")
    git("add", "code.py")
    git("commit", "--quiet", "--message", "Begin")
    git("tag", "v1")
    record_start(run)
    start = last_start(run)
    assert start is not None
    assert (start.commit, start.changed) == (git("rev-parse", "HEAD"), False)
    Path("code.py").write_text("x = 2\n")
    record_start(run)
    start = last_start(run)
    assert start is not None
    assert start.code == f"{git('rev-parse', 'HEAD')[:7]} (changed)"
    assert len((run / STARTS_FILE).read_text().splitlines()) == 3


@pytest.mark.parametrize("line", ['{"host": 3, "time": "x"}', "[]", "{"])
def test_a_damaged_start_has_no_host(tmp_path: Path, line: str) -> None:
    (tmp_path / STARTS_FILE).write_text(line + "\n")
    start = last_start(tmp_path)
    assert start is None or (start.host, start.commit, start.code) == ("", None, "")
