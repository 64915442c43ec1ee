"""Measure the speed of reward functions: episodes scored per second, and time to the first score.

With `--before FOLDER`, the root of another checkout, both versions are measured alternately, and
the table shows the ratios. Each case runs in a separate process.
"""

import argparse
import asyncio
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

FUNCTIONS = """
import asyncio, os, time, urllib.request

def cheap(episode):
    return float("7" in episode.turns[-1].reply)

def bright(episode):
    return [float(turn.images[-1][::8, ::8].mean() > 99) for turn in episode.turns]

def easyr1(reward_inputs):
    return [{"overall": float(one["response"] == one["ground_truth"])} for one in reward_inputs]

def trl(completions, **kwargs):
    return [float("7" in one[0]["content"]) for one in completions]

def verl(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

def http(episode):
    return float(urllib.request.urlopen(os.environ["SLOW"]).read())

async def http_async(episode):
    await asyncio.sleep(0.1)
    return 1.0
"""


@dataclass(slots=True, kw_only=True, frozen=True)
class Case:
    """A row of the table."""

    name: str
    function: str
    episodes: int
    turns: int = 1
    pixels: tuple[int, int] = (8, 8)
    reply: str = "7"


SCREEN = (1280, 720)
CASES = (
    Case(name="of an episode", function="cheap", episodes=10_000),
    Case(name="EasyR1, batches", function="easyr1", episodes=10_000),
    Case(name="veRL, one answer", function="verl", episodes=10_000),
    Case(name="TRL, with **kwargs", function="trl", episodes=10_000),
    Case(
        name="10 turns with screens, not read",
        function="cheap",
        episodes=2000,
        turns=10,
        pixels=SCREEN,
    ),
    Case(
        name="10 turns with one screen, read",
        function="bright",
        episodes=200,
        turns=10,
        pixels=SCREEN,
    ),
    Case(name="1 screen, TRL, not read", function="trl", episodes=5000, pixels=SCREEN),
    Case(
        name="maths:Accuracy", function="maths", episodes=300, reply=r"\boxed{\frac{%(n)d}{%(m)d}}"
    ),
    Case(name="HTTP, 0.1 s", function="http", episodes=1500),
    Case(name="HTTP, 0.1 s, async", function="http_async", episodes=2000),
    Case(name="judge, 0.1 s", function="judge", episodes=1000),
)
AT_ONCE = 32
"""Number of episodes in flight: the default of `rollout.concurrency`."""


def episode_of(case: Case, number: int) -> Any:
    """Make a synthetic episode of one question."""
    from agentrl.types import Episode, Outcome, Turn

    image = np.full((*case.pixels, 3), number % 255, np.uint8)
    turn = Turn(
        prompt_ids=tuple(range(1000)),
        reply_ids=tuple(range(100)),
        reply_logprobs=(-1.0,) * 100,
        reply_versions=(0,) * 100,
        reply=case.reply % {"n": 7 * (number + 1), "m": number + 1},
        images=(image,),
        shown="How many? <image>",
        frames=(),
        action="7",
        parse_error=None,
        env_reward=0.0,
        state_key=None,
        info={"ground_truth": "7"},
    )
    turns = tuple(turn for _ in range(case.turns))
    return Episode(
        id=f"e{number}", env_id="QA-v0", seed=number, group="g", member=0,
        reset_info={"row": {"solution": "7"}}, instructions="Answer.", turns=turns, final_shown="",
        final_frames=(), outcome=Outcome.TERMINATED, error=None, device=None,
    )  # fmt: skip


async def measure(case: Case, folder: Path, url: str) -> dict[str, float]:
    """Return the seconds until the first episode is scored, and episodes per second after that."""
    from agentrl.config import Config, RewardConfig
    from agentrl.rollout.collector import requests_of_step
    from agentrl.rollout.rollout_plan import plan_rollouts
    from agentrl.rollout.workers.rollout_worker import RolloutWorker

    functions = {
        "maths": ("agentrl.rewards.maths:Accuracy", {}),
        "judge": (
            "judge",
            {"url": f"{url}/v1", "model": "toy", "images": "none", "concurrency": AT_ONCE},
        ),
    }
    name, kwargs = functions.get(case.function, (f"{folder}/benchmarked.py:{case.function}", {}))
    config = Config()
    config.env.id = "CartPole-v1"
    config.rollout.concurrency, config.rollout.launcher = 1, "local"
    config.rewards = [RewardConfig(function=name, kwargs=kwargs)]
    request = requests_of_step("train", 1, [1], 1)[0]
    left = [episode_of(case, number) for number in range(min(case.episodes, 500))]
    worker = RolloutWorker(plan_rollouts(config), None, None)
    began = time.perf_counter()
    await worker.start()
    try:
        _, error = await worker.record(request, left[0])
        assert error is None, error
        first_s = time.perf_counter() - began

        async def score_next(numbers: Iterator[int]) -> None:
            for number in numbers:
                await worker.record(request, left[number % len(left)])

        for count in (case.episodes // 2, case.episodes):  # the first half warms up
            numbers, began = iter(range(count)), time.perf_counter()
            await asyncio.gather(*(score_next(numbers) for _ in range(AT_ONCE)))
        rate = case.episodes / (time.perf_counter() - began)
    finally:
        await worker.close()
    return {"first_s": first_s, "rate": rate}


@contextmanager
def slow_server() -> Iterator[str]:
    """Serve replies after a tenth of a second: a number for GET, a judge's grade for POST."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(b"1")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            grade = json.dumps({"reason": "So.", "score": 1})
            self.answer(json.dumps({"choices": [{"message": {"content": grade}}]}).encode())

        def answer(self, body: bytes) -> None:
            time.sleep(0.1)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 1024

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def run(case: Case, root: Path, folder: Path, url: str) -> dict[str, float]:
    """Measure a case using the package in a checkout."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", case.name, "--folder", str(folder), "--url", url],
        env={**os.environ, "PYTHONPATH": str(root), "SLOW": url},
        stdout=subprocess.PIPE, text=True, check=True, cwd=folder,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="root of another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="measure only cases whose names contain this text")
    for hidden in ("--case", "--folder", "--url"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        (case,) = (one for one in CASES if one.name == options.case)
        print(json.dumps(asyncio.run(measure(case, Path(options.folder), options.url))))
        return
    from conditions import conditions
    from rich.console import Console
    from rich.table import Table

    Console().print(conditions("numpy", "math-verify"), highlight=False, soft_wrap=True)
    roots = {"": Path(__file__).resolve().parent.parent}
    if options.before:
        roots = {"before": options.before.resolve(), "now": roots[""]}
    table = Table("reward function")
    for name in roots:
        table.add_column(f"{name} per second".strip(), justify="right")
        table.add_column(f"{name} first, s".strip(), justify="right")
    if options.before:
        table.add_column("ratio", justify="right")
    with tempfile.TemporaryDirectory() as scratch, slow_server() as url:
        Path(scratch, "benchmarked.py").write_text(FUNCTIONS)
        for case in CASES:
            if options.only and options.only not in case.name:
                continue
            found: dict[str, list[dict[str, float]]] = {name: [] for name in roots}
            for _ in range(options.rounds):
                for name, root in roots.items():
                    found[name].append(run(case, root, Path(scratch), url))
            cells, rates = [], []
            for rounds in found.values():
                rates.append(median(one["rate"] for one in rounds))
                first = median(one["first_s"] for one in rounds)
                cells += [f"{rates[-1]:,.0f}", f"{first:.2f}"]
            ratio = [f"{rates[1] / rates[0]:.2f}"] if options.before else []
            table.add_row(case.name, *cells, *ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
