"""What the tests of jobs on data sets share."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from agentrl.runs.metrics_file import read_metrics
from agentrl.training.checkpoints import checkpoint_store
from tests.training.monitoring.test_metric_descriptions import described

SMALL = ["logging=[file]", "rollout.launcher=local", "checkpoint.every=4"]


class SeeingPlayer:
    """A scripted player that needs the observation."""

    def reply(self, info, rng, observation):
        return "<action>left</action>"


def kill_after_first_checkpoint(folder, *arguments):
    """Run a command until its run has a checkpoint, then kill it with SIGKILL."""
    process = subprocess.Popen([sys.executable, "-m", "agentrl", *map(str, arguments)])
    deadline = time.monotonic() + 120
    while checkpoint_store.latest(folder) is None and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


@contextmanager
def interrupted_after_step(folder, step):
    """Press Ctrl-C once a run of this process has logged a step."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    file = folder / "metrics.jsonl"

    def press():
        deadline = time.monotonic() + 120
        while not (file.is_file() and f'"step": {step}' in file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press, daemon=True)
    pressing.start()
    try:
        yield
    finally:
        pressing.join()
        signal.signal(signal.SIGINT, before)


@contextmanager
def reward_server(run):
    """The URL of a server of a reward model."""
    command = [sys.executable, "-m", "agentrl", "serve-reward", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"http://\S+", process.stdout.readline()).group()
        finally:
            process.terminate()


def losses(run):
    """The loss of each evaluation in the summary of a run."""
    return {
        name: one["loss"]
        for name, one in run.summary.items()
        if isinstance(one, dict) and "loss" in one
    }


def metrics(run):
    return described(read_metrics(run.path))
