"""Jobs on real disks that are full, read-only or gone: one line says so, and nothing is lost."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentrl import cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
JOB = [
    "train", str(Path(__file__).parents[2] / "examples" / "own_environment.yaml"),
    *("model.tiny.hidden=32", "model.tiny.layers=2", "model.tiny.heads=1"),
    *("model.tiny.kv_heads=1", "model.tiny.intermediate=64", "model.tiny.vision_hidden=32"),
    *("model.tiny.vision_depth=1", "model.tiny.vision_heads=2"),
    *("model.tiny.vision_intermediate=64", "warm_start.steps=6", "train.steps=3"),
    *("rollout.groups=2", "rollout.group_size=4", "eval.every=2", "eval.episodes=4"),
    *("eval.episodes_during=4", "checkpoint.every=1", "checkpoint.keep=1", "logging=[file]"),
]  # fmt: skip
ROOM = "32m"


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def run(capsys, *arguments: object) -> tuple[int, str]:
    """The status of a command, and what it prints to the terminal's error stream."""
    status = cli.run([str(one) for one in arguments])
    return status, capsys.readouterr().err


@pytest.fixture
def job(disk: Path) -> list[str]:
    return [*JOB, f"run.dir={disk}", "run.name=run", "warm_start.cache=null"]


@contextmanager
def once(file: Path, act: Callable[[], object]) -> Iterator[None]:
    """Do something as soon as a file or folder appears."""
    over = threading.Event()

    def watch() -> None:
        while not file.exists():
            if over.wait(0.002):
                return
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def fill(file: Path) -> None:
    """Write to a file until its disk is full."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while filler.write(bytes(size)) == size:
                    pass


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def logged(run: Path) -> list[tuple[str, int]]:
    """The stage and step of each line of metrics, without the check at each start of the engine."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(row["stage"], row["step"]) for row in rows if row["stage"] != "engine check"]


def test_a_disk_that_is_full_at_any_stage_is_one_line_and_loses_nothing(
    disk: Path, job: list[str], capsys, caplog
) -> None:
    assert run(capsys, *job, "run.name=whole")[0] == 0
    whole, one = disk / "whole", disk / "run"
    stages = [
        one / "start",
        one / "episodes" / "index-rollout0.jsonl",
        one / "checkpoints" / "step-00000",
        one / "checkpoints" / "step-00002",
        one / "checkpoints" / "step-00003" / "trainer.json",
    ]
    command = job
    for file in stages:
        caplog.clear()
        with once(file, lambda: fill(disk / "filling")):
            status, said = run(capsys, *command)
        (disk / "filling").unlink()
        line = said.splitlines()[-1]
        assert "Traceback" not in said
        if status == 2:  # it was full when the free space was checked, before anything was saved
            assert "Free some space" in line
            continue
        command = ["train", "--resume", str(one)]
        assert status == 1, file
        assert line.startswith("OSError: ")
        assert str(one) in line
        assert "No space left on device" in line or "disk is full" in line
        assert f"resume with: agentrl train --resume {one}" in caplog.text
    assert run(capsys, *command)[0] == 0
    assert weights(one) == weights(whole)
    assert logged(one) == logged(whole)


def test_a_folder_on_a_read_only_disk_is_refused_before_any_work(
    disk: Path, job: list[str], capsys
) -> None:
    assert run(capsys, *job, "train.steps=1")[0] == 0
    mount("-o", "remount,ro", disk)
    for command, words in (
        ([*job, "run.name=other"], f"{disk} is not a writable folder"),
        (["train", "--resume", disk / "run", "train.steps=2"], f"{disk}/run is not a writable"),
        (["prune", disk / "run", "--keep-gb", "0"], "Read-only file system"),
    ):
        status, said = run(capsys, *command)
        assert (status, words in said.splitlines()[-1]) == (2, True), said
    assert run(capsys, "episodes", disk / "run") == (0, "")
    mount("-o", "remount,rw", disk)


def test_a_run_that_is_deleted_while_it_trains_says_so(disk: Path, job: list[str], capsys) -> None:
    one = disk / "run"
    with once(one / "checkpoints" / "step-00001", lambda: shutil.rmtree(one)):
        status, said = run(capsys, *job)
    assert status == 2
    assert said.splitlines()[-1].startswith(
        f"ConfigError: {one}: the run's folder was removed or its disk unmounted"
    )
