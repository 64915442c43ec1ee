"""The names of `import agentrl`: complete, lazy, typed, and usable in a notebook."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import agentrl
from agentrl import event_loop
from agentrl.errors import ConfigError

USER_FILE = Path(__file__).with_name("user_file.py")


def test_every_public_name_resolves_and_is_listed() -> None:
    assert dir(agentrl) == sorted(agentrl.__all__)
    for name in agentrl.__all__:
        assert getattr(agentrl, name) is not None, name
        assert name in agentrl.__doc__ or name in ("Evaluation", "__version__"), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = agentrl.nothing


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_a_users_file_passes_pyright(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(f"# pyright: strict\n{USER_FILE.read_text()}")
    command = ["-m", "pyright", "--pythonpath", sys.executable, "job.py"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stdout


def test_a_mistake_from_python_ends_with_its_message_after_the_users_line(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text('import agentrl\n\nagentrl.train("frozen_lake", overrides=["train.stepz=3"])\n')
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=100)
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("agentrl.errors.ConfigError: train.stepz=3: ")
    assert "did you mean 'steps'?" in lines[-1]
    assert str(file) in lines[1]
    assert len(lines) <= 7, done.stderr


def test_a_mistake_in_a_notebook_is_one_line() -> None:
    shell = InteractiveShell.instance()
    with pytest.raises(ConfigError) as raised:
        agentrl.load_config("frozen_lake", ["train.stepz=3"])
    with capture_output() as shown:
        shell.showtraceback(raised._excinfo)
    assert shown.stdout.strip() == f"ConfigError: {raised.value}"


async def test_evaluate_and_play_work_inside_a_running_event_loop(tmp_path: Path) -> None:
    settings = [f"run.dir={tmp_path}", "rollout.launcher=local", "logging=[]"]
    result = agentrl.evaluate("frozen_lake", policy="random", episodes=2, overrides=settings)
    assert result.episodes == 2
    assert result.run is not None
    labels = [one.label for one in agentrl.replay.open(result.run).episodes()]
    assert labels.count("random") == 2
    assert labels.count("random-unseen-levels") == 2


async def test_an_interrupt_inside_a_running_loop_cancels_and_cleans_up() -> None:
    cleaned = threading.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        event_loop.run(work())
    assert cleaned.is_set()
    assert time.monotonic() - started < 30
    assert not [t for t in threading.enumerate() if t.name.startswith("agentrl-loop")]


def test_results_and_errors_pass_through() -> None:
    async def result() -> int:
        return 3

    async def nested() -> int:
        return event_loop.run(result())

    async def failing() -> None:
        raise ValueError("no")

    async def nested_failure() -> None:
        event_loop.run(failing())

    assert event_loop.run(result()) == asyncio.run(nested()) == 3
    with pytest.raises(ValueError, match="no"):
        asyncio.run(nested_failure())
