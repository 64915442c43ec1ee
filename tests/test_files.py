import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.errors import ConfigError
from agentrl.files import (
    atomic_replace,
    is_locked,
    lock_folder,
    remove_partial_files,
    write_durably,
)

HOLDER = """
import sys
from pathlib import Path
from agentrl.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/state\.json'"):
            write_durably(tmp_path / "state.json", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    write_durably(path, "1")
    with atomic_replace(path) as partial:
        partial.write_text("2")
        assert path.read_text() == "1"
    assert path.read_text() == "2"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_block_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    write_durably(path, "1")
    with pytest.raises(UnicodeEncodeError), atomic_replace(path) as partial:
        partial.write_text("half \ud800")
    assert path.read_text() == "1"
    assert list(tmp_path.iterdir()) == [path]


def test_partial_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    half = "from agentrl.files import atomic_replace; import os; from pathlib import Path\n"
    half += "with atomic_replace(Path('numbers.json')) as p: p.write_text('4'); os._exit(1)"
    subprocess.run([sys.executable, "-c", half], cwd=tmp_path, check=False)
    assert [path.name.endswith(".numbers.json") for path in tmp_path.iterdir()] == [True]
    with atomic_replace(tmp_path / "other.json") as partial:
        partial.write_text("5")
        remove_partial_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]
    assert (tmp_path / "other.json").read_text() == "5"


def test_a_folder_is_locked_by_one_process_until_it_is_killed(tmp_path: Path) -> None:
    assert is_locked(tmp_path) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n"
        with pytest.raises(ConfigError, match="another process"), lock_folder(tmp_path):
            pass
        assert is_locked(tmp_path)
        holder.kill()
        holder.wait(10)
    assert is_locked(tmp_path) is False
    with lock_folder(tmp_path):
        pass
