"""Pruning beside a training job: in the background, once at a time, and never its end."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.config import Config
from agentrl.files import lock_folder
from agentrl.replay.recorder import Recorder
from agentrl.training.trainer.retention import Retention
from tests.replay.aging import age
from tests.viewer import runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = runs.run(tmp_path / "run")
    age(folder)
    return folder


def retention(run: Path, keep_gb: float | None) -> Retention:
    config = Config()
    config.run.keep_gb = keep_gb
    return Retention(run, config.run.keep_gb, config.rollout)


def prunings() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prune"]


def wait() -> None:
    for thread in prunings():
        thread.join(30)
        assert not thread.is_alive()


def removed(run: Path) -> int:
    return sum(summary.removed for summary in replay.open(run).episodes())


def test_a_run_that_cannot_be_pruned_is_a_warning(run, caplog):
    (run / "frames" / "ab").mkdir()
    kept = retention(run, 1e-6)
    kept.begin()
    wait()
    kept.close()
    assert caplog.text.count("recorded by an older agentrl") == 2
    assert removed(run) == 0


def test_a_job_prunes_in_the_background(run):
    kept = retention(run, 1e-6)
    kept.begin()
    wait()
    assert removed(run) == 9
    with Recorder(run, writer="later") as recorder:
        runs.played(recorder, "train", 0, step=3)
    kept.begin()
    wait()
    assert removed(run) == 9  # it was recorded just now
    kept.close()
    assert removed(run) == 10


def test_a_job_without_a_limit_removes_nothing(run):
    kept = retention(run, None)
    kept.begin()
    kept.close()
    assert removed(run) == 0


def test_prunings_never_overlap_and_never_block(run):
    kept = retention(run, 1e-6)
    (pack,) = (run / "frames").glob("*.sqlite")
    with closing(sqlite3.connect(pack, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")  # pruning it waits
        kept.begin()
        under_way = prunings()
        kept.begin()
        kept.begin()
        assert prunings() == under_way
        assert len(under_way) == 1
        assert removed(run) == 0
        writer.execute("ROLLBACK")
    wait()
    kept.begin()
    wait()
    assert removed(run) == 9


def test_a_failed_pruning_is_a_warning_and_is_retried(run, caplog):
    kept = retention(run, 1e-6)
    with lock_folder(run / "episodes"):
        kept.begin()
        wait()
    assert "pruning failed, will retry after the next step" in caplog.text
    assert removed(run) == 0
    kept.begin()
    wait()
    assert removed(run) == 9


def test_an_unreachable_limit_is_a_single_warning(run, caplog):
    kept = retention(run, 1e-6)
    for _ in range(3):
        kept.begin()
        wait()
    kept.close()
    assert caplog.text.count("evaluations and demonstrations, which are never removed") == 1
