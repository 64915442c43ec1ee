"""A job whose judge is wrong too often stops, says why, and can be resumed with a better one."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from agentrl import cli, replay
from agentrl.config import RewardAuditConfig
from agentrl.data.image_loading import load_image
from agentrl.training.checkpoints import checkpoint_store
from tests.policies.completions_server import ok, reply, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_environment.yaml"


class Grader:
    """Looks at every screen whether the lit button was pressed; wrong for a share of episodes."""

    wrong = 0.1

    def __init__(self):
        self.num_screens = set()

    def __call__(self, body):
        parts = body["messages"][1]["content"]
        digest = hashlib.sha256(json.dumps(parts).encode()).digest()
        screens = [load_image(p["image_url"]["url"], None) for p in parts if "image_url" in p]
        self.num_screens.add(len(screens))
        lit = [int(screen[:, screen.shape[1] // 2 :].mean() > screen.mean()) for screen in screens]
        text = "\n".join(part.get("text", "") for part in parts)
        pressed = [int(action) for action in re.findall(r"^Action: (\d)$", text, re.M)]
        won = pressed == lit[: len(pressed)] and len(pressed) == 4
        score = int(won != (digest[0] / 256 < self.wrong))
        return ok(reply(json.dumps({"reason": "I looked.", "score": score})))


def test_a_job_stops_when_its_judge_breaks_the_bound_and_can_be_resumed(tmp_path, capsys):
    grader = Grader()
    with serving() as server:
        server.usual = grader
        kwargs = f"{{url: '{server.url}', model: toy, images: all}}"
        settings = [
            f"rewards=[{{function: judge, kwargs: {kwargs}}}]",
            "reward_audit={truth: right, max_false_accept: 0.05}",
            "warm_start.steps=10", "train.steps=30", "checkpoint.every=100", "eval.episodes=1",
            "rollout.groups=4",
            "eval.baselines=[]", "logging=[file]", f"run.dir={tmp_path}", "run.name=run",
        ]  # fmt: skip
        assert cli.run(["train", str(EXAMPLE), *settings]) == 1
        error, run = capsys.readouterr().err, tmp_path / "run"
        found = re.search(
            r"stopped before training on step (\d+) because the reward is wrong", error
        )
        assert re.search(
            r"UnreliableReward: .* (\d+) of \d+ episodes that right rates as failures are accepted "
            r"by reward .*%, 95% interval .* above reward_audit.max_false_accept=0.05",
            error,
        )
        last = int(found[1]) - 1
        assert f"saved up to step {last}" in error or last == 0
        assert checkpoint_store.step_of(checkpoint_store.latest(run)) == last
        report = json.loads((run / "audits" / "training.json").read_text())
        assert 0.05 < report["false_accepts"]["low"] < 0.1 < report["false_accepts"]["high"]
        opened = replay.open(run)
        for case in report["cases"]:
            one = opened.episode(case["id"])
            assert (one.summary.reward >= 0.5) == (case["kind"] == "false accept")
            assert opened.frame(case["frame"]) is not None

        grader.wrong = 0.0
        assert cli.run(["train", "--resume", str(run), f"train.steps={last + 1}"]) == 0
    assert grader.num_screens == {5}  # one per turn, and the last one
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["stage"] == "reinforcement"]
    assert [line["step"] for line in steps] == [*range(1, last + 2)]
    assert steps[-1]["audit/false_accept"] == 0.0
    assert steps[-1]["audit/episodes"] == 32  # the audit started over
    if last:  # not stopped: within the bound, or not yet judged by it
        enough = steps[0]["audit/episodes"] >= RewardAuditConfig().min_episodes
        assert steps[0]["audit/false_accept_low"] < 0.05 or not enough
    report = json.loads((run / "audits" / "training.json").read_text())
    assert report["false_accepts"]["count"] == 0
