"""From an empty folder, with the installed wheel: one file for each thing that a user can replace.

One job names them all and trains; each passes `agentrl check`, and a broken copy of each fails.
"""

import csv
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentrl.devices.adb import AdbServer
from tests.wheel import ROOT, install, result, run

sys.path.append(str(ROOT / "benchmarks"))

from family_models import build

EXTEND = ROOT / "examples" / "extend"

pytestmark = [pytest.mark.slow, pytest.mark.adb, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Part:
    """What a user provides in a file, and how a copy of the file is broken."""

    kind: str
    target: str
    settings: Sequence[str]
    old: str
    new: str
    reason: str
    """Why `agentrl check` rejects the broken copy."""

    @property
    def file(self) -> str:
        return self.target.partition(":")[0]


PARTS = (
    Part(
        kind="algorithm",
        target="algorithm.py:QuantileAdvantage",
        settings=(),
        old="(returns - baseline) /",
        new="returns /",
        reason="adding a constant to all their rewards changes nothing",
    ),
    Part(
        kind="loss",
        target="loss.py:SimplePolicyLoss",
        settings=(),
        old="log_ratio(inputs.logprobs, inputs.old_logprobs)",
        new="(inputs.logprobs - inputs.old_logprobs)",
        reason="bound the log-ratio",
    ),
    Part(
        kind="model",
        target="model_adapter.py:Llava",
        settings=("path=llava",),
        old='(self._side // vision["patch_size"]) ** 2',
        new='(self._side // vision["patch_size"]) ** 2 - 1',
        reason="but the model's own processor produces 16",
    ),
    Part(
        kind="chat",
        target="chat_format.py:Names",
        settings=("path=llava",),
        old="*parts, *self",
        new="*self",
        reason="'user-words' is not in the prompt",
    ),
    Part(
        kind="dialect",
        target="dialect.py:Lines",
        settings=(),
        old="Tap(x, y)",
        new="Tap(y, x)",
        reason="Tap",
    ),
    Part(
        kind="driver",
        target="driver.py:PlainDriver",
        settings=(),
        old='if status == b"FAIL"',
        new='if status == b"NO"',
        reason="the server's message is missing",
    ),
    Part(
        kind="capture",
        target="capture.py:PillowCapture",
        settings=(),
        old='convert("RGB")',
        new='convert("RGB").rotate(180)',
        reason="the picture differs from `screencap`",
    ),
    Part(
        kind="logger",
        target="logger.py:CsvLogger",
        settings=("digits=3",),
        old='row["step"]',
        new='row["stp"]',
        reason="KeyError: 'stp' (logger.py:",
    ),
    Part(
        kind="env",
        target="environment.py:Lights-v0",
        settings=(),
        old='return "light", info',
        new='return "lamp", info',
        reason="player expert: ",
    ),
    Part(
        kind="player",
        target="player.py:Hasty",
        settings=("env.id=environment.py:Lights-v0",),
        old='info["lit"]',
        new='info["lamp"]',
        reason="KeyError: 'lamp' (player.py:",
    ),
    Part(
        kind="reward",
        target="reward.py:brief",
        settings=("per_token=0.01",),
        old="len(turn.reply_ids)",
        new="len(turn.reply_idz)",
        reason="'Turn' object has no attribute 'reply_idz' (reward.py:",
    ),
    Part(
        kind="engine",
        target="engine.py:PlainEngine",
        settings=("device=cpu",),
        old="check_header(self._model, path)",
        new="pass",
        reason="load_weights accepts a file that lacks a weight",
    ),
    Part(
        kind="transport",
        target="transport.py:DeltaTransport",
        settings=(),
        old="if rank > 0:",
        new="if rank < 0:",
        reason="a rank other than 0 sends to the engines",
    ),
    Part(
        kind="sampler",
        target="sampler.py:Staircase",
        settings=("others=0.2",),
        old='state.get("num_open", 1)',
        new="1",
        reason="restore() loses part of what state() returned",
    ),
    Part(
        kind="suite",
        target="suite.py:Lakes",
        settings=(),
        old='"map_name"',
        new='"map_nam"',
        reason="does not accept this argument (did you mean 'map_name'?)",
    ),
)
JOB = """
model:
  path: llava
  adapter: "model_adapter.py:Llava"
  chat: "chat_format.py:Names"
  dtype: float32
env:
  id: environment.py:Lights-v0
  dialect: dialect.py:Lines
  players: {hasty: "player.py:Hasty"}
  max_turns: 4
devices:
  source: virtual:2
  tempo: quick
  driver: driver.py:PlainDriver
  capture: capture.py:PillowCapture
rewards:
  - {function: reward.py:brief, kwargs: {per_token: 0.01}}
rollout:
  engine: engine.py:PlainEngine
  engine_kwargs: {device: cpu}
  launcher: local
  groups: 2
  group_size: 2
  concurrency: 2
  max_new_tokens: 12
  max_context: 2048
algorithm: {name: "algorithm.py:QuantileAdvantage", loss: {name: "loss.py:SimplePolicyLoss"}}
sampling: {name: "sampler.py:Staircase", pool: 4, success_at: 3.0}
train: {steps: 1, weight_transfer: "transport.py:DeltaTransport"}
eval: {every: 0, episodes: 1, baselines: [expert, hasty], suite: suite.py:Lakes}
logging: [file, {name: logger.py:CsvLogger, kwargs: {digits: 3}}]
"""


@pytest.fixture(scope="module")
def agentrl(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an installation that sees this one's other packages, and no checkout."""
    folder = tmp_path_factory.mktemp("environment")
    site = install(wheel, folder)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    code = "import agentrl, torch; print(agentrl.__file__)"
    where = run(folder / "bin" / "python", "-c", code, cwd=folder)
    assert Path(where.strip()).is_relative_to(folder)
    return folder / "bin" / "agentrl"


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model of a family that has no adapter in the package."""
    return build("LLaVA (generic)", tmp_path_factory.mktemp("family") / "llava")


@pytest.fixture
def empty(tmp_path: Path, llava: Path) -> Path:
    """A user's folder, with nothing but the files and a model."""
    (tmp_path / "llava").symlink_to(llava)
    for part in PARTS:
        shutil.copy(EXTEND / part.file, tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_one_job_trains_with_all_of_them(agentrl: Path, empty: Path, adb_server: AdbServer) -> None:
    planned = run(agentrl, "train", "job.yaml", "--dry-run", cwd=empty)
    assert not (empty / "runs").exists()
    for part in PARTS:
        name = "environment.py:LightsEnv" if part.kind == "env" else part.target
        assert f"- {part.kind} = {name}\n" in planned, part.kind
    run(agentrl, "train", "job.yaml", "run.name=it", cwd=empty, timeout_s=400)
    folder = empty / "runs" / "it"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["expert"]["score"] == 3.0
    assert 0.0 <= summary["hasty"]["score"] <= 3.0
    assert summary["expert"]["reward"] < 3.0  # the reward takes a little for each token
    with (folder / "csv" / "reinforcement.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1"]
    said = run(
        agentrl, "eval", "runs/it", "--policy", "random", "--episodes", "1", "--json", cwd=empty
    )
    played = {one["task"] for one in json.loads(said)["results"]}
    assert played >= {"4x4", "8x8 slippery"}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.kind)
def test_each_passes_its_checks_and_a_broken_copy_fails(
    agentrl: Path, empty: Path, adb_server: AdbServer, part: Part
) -> None:
    command = (agentrl, "check", part.kind, part.target, *part.settings)
    said = run(*command, cwd=empty, timeout_s=400)
    assert "FAILED" not in said
    assert said.splitlines()[-1].startswith("All checks pass. Next: agentrl ")
    code = (empty / part.file).read_text()
    assert code.count(part.old) >= 1
    (empty / part.file).write_text(code.replace(part.old, part.new))
    os.utime(empty / part.file, (0, 0))  # Bytecode of the same second and size would be taken.
    done = result(*command, cwd=empty, timeout_s=400)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert any(part.reason in line for line in failed), failed
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("Fix the first one, then check again. Next: ")
