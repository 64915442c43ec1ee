import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.policies.engines import vllm_processes
from tests.test_child_process import is_running, wait_for_end_of

FOLDER = Path(vllm_processes.__file__).parent
FORKING = """
import os, time
if (child := os.fork()) == 0:
    time.sleep(600)
print(child, flush=True)
input()
"""
KILLED_AS_IT_FORKS = """
import os, time
if (child := os.fork()) == 0:
    time.sleep(600)
os.write(1, b"%d\\n" % child)
os.kill(os.getpid(), 9)
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
input()
"""


def environment(**settings: str) -> dict[str, str]:
    return {**os.environ, "AGENTRL_VLLM_PROCESS": "1", "PYTHONPATH": str(FOLDER), **settings}


@pytest.mark.parametrize("program", [PARENT, FORKING, KILLED_AS_IT_FORKS])
def test_children_die_with_a_killed_parent(program: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if program != KILLED_AS_IT_FORKS:
            assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    wait_for_end_of([child])


def test_broken_packages_are_hidden_and_a_shadowed_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['SHADOWED'] = 'ran'")
    program = "import os, importlib.util as i; print(os.environ['SHADOWED'], i.find_spec('nosuch'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(
            PYTHONPATH=os.pathsep.join([str(FOLDER), str(tmp_path)]), AGENTRL_WITHOUT="nosuch"
        ),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["ran", "None"]
