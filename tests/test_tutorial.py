"""Every command of docs/tutorial.md runs, in order, from an empty folder."""

import json
import shlex
import subprocess
import sys
from urllib.request import urlopen

import pytest

from agentrl.cli import run as agentrl
from tests.test_docs import blocks, name_of

PAGE = "tutorial.md"
SHORT = {
    "steps: 300, batch: 32": "steps: 60, batch: 16",
    "train: {steps: 16}": "train: {steps: 1}",
    "eval: {every: 0, episodes: 60}": "eval: {every: 0, episodes: 4}",
    "episodes: 100": "episodes: 4",
    "--episodes 400": "--episodes 96",
}
"""Less of everything: enough for replies that can be read, of which some are right."""


def shortened(code):
    for long, short in SHORT.items():
        code = code.replace(long, short)
    return code


def view(words):
    """Open the pages as a browser does; the command runs until it is stopped."""
    command = [sys.executable, "-m", "agentrl", *words, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = next(
                word for line in server.stdout for word in line.split() if word.startswith("http")
            )
            with urlopen(address, timeout=60) as page:
                assert b"<html" in page.read()
        finally:
            server.terminate()


def rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.adb
@pytest.mark.timeout(900)
def test_the_commands_of_the_tutorial_run_in_order(tmp_path, monkeypatch, adb_server):
    for code in SHORT:
        assert any(code in one for kind in ("bash", "yaml") for one in blocks(PAGE, kind)), code
    monkeypatch.chdir(tmp_path)
    for code in blocks(PAGE, "yaml"):
        (tmp_path / name_of(code)).write_text(shortened(code))
    for line in (line for code in blocks(PAGE, "bash") for line in code.splitlines()):
        program, *words = shlex.split(shortened(line))
        assert program == "agentrl"
        if words[0] == "view":
            view(words)
        else:
            assert agentrl(words) == 0, line
    (documented,) = (json.loads(code) for code in blocks(PAGE, "json"))
    chats = rows(tmp_path / "chats.jsonl")
    assert len(chats) == 96
    assert documented.keys() <= chats[0].keys()
    assert all((tmp_path / row["images"][0]).is_file() for row in chats)
    copied = json.loads((tmp_path / "runs" / "copied" / "summary.json").read_text())
    assert copied["after"]["loss"] < copied["before"]["loss"]
    assert rows(tmp_path / "pairs.jsonl")
    compared = json.loads((tmp_path / "runs" / "compared" / "results.json").read_text())
    assert len({one["model"] for one in compared["results"]}) == 3
    assert [len(row["responses"]) for row in rows(tmp_path / "answers.jsonl")] == [1] * 5
    from transformers import AutoConfig  # not before agentrl, which repairs broken extras

    assert AutoConfig.from_pretrained(tmp_path / "my-model").model_type
