import os
import subprocess
import sys
from pathlib import Path

from agentrl.weight_sync.published_weights import remove_stale_folders

PUBLISH = """
import os, sys
from agentrl.weight_sync.published_weights import publish

class Toy:
    def save_weights(self, path):
        path.write_text("weights")

print(publish(Toy(), 1), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


def published(how):
    process = subprocess.run(
        [sys.executable, "-c", PUBLISH, how], capture_output=True, text=True, timeout=60
    )
    return Path(process.stdout.strip())


def test_weights_are_removed_at_exit_and_those_of_a_killed_process_by_the_next():
    path = published("killed")
    assert path.exists()
    assert not published("ends").parent.exists()
    assert not path.parent.exists()


def test_folders_of_running_processes_are_not_removed(tmp_path):
    own = tmp_path / f"agentrl-weights-{os.getpid()}-x"
    own.mkdir()
    remove_stale_folders(tmp_path)
    assert own.exists()
