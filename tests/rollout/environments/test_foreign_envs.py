"""Environments of packages that are not installed: errors name the package; then play them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import playwright
import psutil
import pytest

from tests.test_docs import named
from tests.virtual_phone.third_party.clients import NotInstalled, python_packages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]
OLD = """
import gym
import numpy as np
from shimmy import GymV26CompatibilityV0

class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0, 10, (1,), dtype=np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at += int(action)
        return np.array([self.at], np.float32), float(self.at == 5), self.at == 5, False, {}

class Wrapped(GymV26CompatibilityV0):
    def __init__(self):
        super().__init__(env=Corridor())

gym.register("Corridor-v0", entry_point=f"{__name__}:Corridor")
"""
CHECK = """
import sys
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.check.environments import check_environment
for id in sys.argv[1:]:
    for finding in check_environment(EnvConfig(id=id, max_turns=12), 10):
        print(id, finding.state, finding.what, finding.detail)
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return python_packages(Path(__file__).with_name("foreign_envs.txt"))
    except NotInstalled as error:
        pytest.skip(str(error))


def test_foreign_environments_get_hints_and_pass_once_these_are_followed(
    packages: Path, tmp_path: Path
) -> None:
    (tmp_path / "corridors.py").write_text(OLD)
    ids = ("Corridor", "Corridor-v0", "Wrapped")
    done = subprocess.run(
        [sys.executable, "-c", CHECK, "ALE/Pong-v5", "ale_py:ALE/Pong-v5"]
        + [f"corridors:{name}" for name in ids],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
        env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{packages}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = [line for line in done.stdout.splitlines() if " wrong " in line]
    hint = "old gym package; derive Corridor from gymnasium.Env, or wrap it in GymV26Compatibility"
    assert "If the installed ale_py registers it, use ale_py:ALE/Pong-v5" in wrong[0]
    assert hint in wrong[1]
    assert hint in wrong[2]
    assert {line.partition(" ")[0] for line in wrong} == {
        "ALE/Pong-v5", "corridors:Corridor", "corridors:Corridor-v0",
    }  # fmt: skip
    assert "ale_py:ALE/Pong-v5 ok gymnasium's checker passes" in done.stdout
    assert "corridors:Wrapped ok another process gives the same episode" in done.stdout


@pytest.fixture
def browsers() -> Iterator[Path]:
    """Return a folder in which Playwright finds the system's Chromium instead of its own download.

    Its path is short, because Chromium creates a socket below it.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    driver = Path(playwright.__file__).parent / "driver"
    own = json.loads((driver / "package" / "browsers.json").read_text())
    revision = next(one["revision"] for one in own["browsers"] if one["name"] == "chromium")
    with tempfile.TemporaryDirectory(prefix="arl") as folder:
        place = Path(folder, f"chromium_headless_shell-{revision}", "chrome-headless-shell-linux64")
        place.mkdir(parents=True)
        (place / "chrome-headless-shell").symlink_to(chromium)
        yield Path(folder)


def test_browsergym_plays_as_documented_and_survives_a_crash_of_its_browser(
    packages: Path, browsers: Path, tmp_path: Path
) -> None:
    """Playwright works in one thread per process, for construction, all calls and recovery."""
    tasks = Path(pytest.importorskip("miniwob").__file__).parent / "html" / "miniwob"
    for name, language in (("browsergym.yaml", "yaml"), ("my_browser.py", "python")):
        (tmp_path / name).write_text(named("environments.md", language, name))
    crash = "{wrapper: 'tests.rollout.crashing_browser:Crashing', kwargs: {seed: 1000001}}"
    done = subprocess.run(
        [sys.executable, "-m", "agentrl", "eval", "browsergym.yaml", "--policy", "clicker",
         "--episodes", "4", "--json", f"env.wrappers=[{crash}]", "rollout.concurrency=2",
         "rollout.max_refills=0", "rollout.launcher=local", "eval.baselines=[]"],
        cwd=tmp_path, capture_output=True, text=True, timeout=400,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(packages)]),
            "PLAYWRIGHT_BROWSERS_PATH": str(browsers),
            "TMPDIR": str(browsers),
            "MINIWOB_URL": f"file://{tasks}/",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["episodes"], found["void"], found["reward"]) == (3, 1, 1.0)
    left = [p for p in psutil.process_iter(["cmdline"]) if str(browsers) in str(p.info["cmdline"])]
    assert not left
