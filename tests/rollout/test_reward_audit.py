"""Rewards against the truth, over recorded episodes."""

import json
import re

import pytest

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.replay.recorder import Recorder
from agentrl.rollout.reward_audit import Comparison, report_on
from agentrl.text.formatting import hash_fraction
from agentrl.types import Outcome, ScoredEpisode
from tests.policies.completions_server import ok, refusal, reply, serving
from tests.replay.episodes import episode, screen, turn

EPISODES = 300
PLANTED = '''
from agentrl.text.formatting import hash_fraction


def score(episode, wrong=0.1):
    """The truth, except for a share of the episodes."""
    won = episode.turns[-1].info["metrics"].get("success", 0) >= 1
    return float(won != (hash_fraction(episode.id) < wrong))


def fragile(episode):
    if hash_fraction(episode.id) < 0.1:
        raise ValueError("no grade for " + episode.id)
    return score(episode, 0.0)


def bright(reward_inputs):
    return [{"overall": float(len(one["images"]))} for one in reward_inputs]


class Sees:
    reads_images = True
    accept_at = 1.5

    def __call__(self, episode):
        return len(episode.turns[-1].images) + len(episode.final_images)
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Record a run where half of the episodes succeed and a hash makes some rewards wrong."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with Recorder(folder) as recorder:
        frames = (recorder.frame(screen(1)), recorder.frame(screen(2)))
        for number in range(EPISODES):
            won, name = number % 2 == 0, f"train-00001-g{number:03d}-m00"
            info = {"metrics": {"success": float(won), "score": 3.0 * won}}
            if number % 10 == 9:
                info = {"metrics": {"score": 0.0}}
            one = episode(
                name,
                turns=(turn(info=info, frames=frames[:1], env_reward=float(won)),),
                final_shown=f"You {'won' if won else 'lost'} <b>game</b> {number}.",
                final_frames=frames[1:],
            )
            value = (float(won != (hash_fraction(name) < 0.2)),)
            recorder.episode(
                ScoredEpisode(episode=one, components={"outcome": value}, rewards=value),
                split="train",
                step=1,
            )
        void = episode("void", turns=(turn(),), outcome=Outcome.TIMEOUT)
        recorder.episode(
            ScoredEpisode(episode=void, components={}, rewards=(0.0,)), split="train", step=1
        )
    return folder


@pytest.fixture
def planted(tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED)
    return tmp_path / "planted.py"


def audit(capsys, *arguments):
    assert agentrl(["audit", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def expected_shares(wrong):
    """Count false accepts and false rejects, one by one."""
    accepts = rejects = failed = succeeded = 0
    for number in range(EPISODES):
        if number % 10 == 9:  # no known truth
            continue
        is_wrong = hash_fraction(f"train-00001-g{number:03d}-m00") < wrong
        if number % 2 == 0:
            succeeded, rejects = succeeded + 1, rejects + is_wrong
        else:
            failed, accepts = failed + 1, accepts + is_wrong
    return accepts, failed, rejects, succeeded


def test_planted_errors_of_ten_percent_are_measured(run, planted, capsys):
    report = audit(capsys, run, "--judge", f"{planted}:score")
    accepts, failed, rejects, succeeded = expected_shares(0.1)
    assert (report["episodes"], report["unknown"], report["failed"]) == (270, 30, 0)
    for found, count, of in (
        (report["false_accepts"], accepts, failed),
        (report["false_rejects"], rejects, succeeded),
        (report["agreement"], 270 - accepts - rejects, 270),
    ):
        assert (found["count"], found["of"], found["share"]) == (count, of, count / of)
        assert found["low"] < found["share"] < found["high"]
    for name in ("false_accepts", "false_rejects"):
        assert report[name]["low"] < 0.1 < report[name]["high"]
    assert report["agreement"]["low"] < 0.9 < report["agreement"]["high"]
    assert len(report["cases"]) == accepts + rejects
    assert {case["kind"] for case in report["cases"]} == {"false accept", "false reject"}
    assert json.loads(next((run / "audits").glob("*planted*.json")).read_text()) == report


def test_what_was_recorded_needs_no_function(run, capsys):
    report = audit(capsys, run, "--judge", "reward")
    assert report["false_accepts"]["count"] == expected_shares(0.2)[0]
    assert report == {**audit(capsys, run, "--judge", "reward/outcome"), "candidate": "reward"}
    other = audit(capsys, run, "--judge", "reward", "--truth", "score", "--truth-at", "3")
    assert (other["episodes"], other["unknown"]) == (300, 0)
    none = audit(capsys, run, "--judge", "reward", "--accept-at", "1.5")
    assert none["false_accepts"]["count"] == 0
    assert none["false_rejects"]["share"] == 1


def test_episodes_that_cannot_be_scored_are_counted_apart(run, planted, capsys):
    report = audit(capsys, run, "--judge", f"{planted}:fragile")
    failed = sum(hash_fraction(f"train-00001-g{n:03d}-m00") < 0.1 for n in range(EPISODES))
    assert report["failed"] == failed > 10
    assert report["episodes"] + report["unknown"] == EPISODES - failed
    assert report["agreement"]["share"] == 1
    assert "no grade for" in report["failures"][0]["why"]


def test_functions_that_read_images_get_the_recorded_frames(run, planted, capsys):
    report = audit(capsys, run, "--judge", f"{planted}:Sees", "--last", "20")
    assert report["accept_at"] == 1.5
    assert report["false_rejects"]["share"] == 0  # each saw its two screens
    assert (
        agentrl(["rescore", str(run), "--reward", f"{planted}:Sees", "--last", "9", "--json"]) == 0
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["now"] for line in lines} == {2}
    report = audit(capsys, run, "--judge", f"{planted}:bright", "--last", "20")
    assert report["false_accepts"]["count"] == 0  # it does not request images


def test_a_judge_over_http_is_measured_with_its_failures(run, tmp_path, capsys):
    def grade(body):
        text = json.dumps(body)
        number = int(re.search(r"game</b> (\d+)", text)[1])
        if number < 10:
            return refusal(400, "image too large")
        wrong = hash_fraction(f"train-00001-g{number:03d}-m00") < 0.1
        score = 1 if ("You won" in text) != wrong else -1
        return ok(reply(json.dumps({"reason": f"<i>Game</i> {number}.", "score": score})))

    with serving() as server:
        server.usual = grade
        settings = {"url": server.url, "model": "toy", "scores": [-1, 1]}
        judge = {"function": "judge", "kwargs": settings}
        (tmp_path / "strict.yaml").write_text(json.dumps(judge))
        html = tmp_path / "page.html"
        arguments = [run, "--judge", tmp_path / "strict.yaml"]
        report = audit(capsys, *arguments, "--html", html)
        assert len(server.asked) == EPISODES
        assert server.asked[0]["messages"][1]["content"][2]["type"] == "image_url"
    assert (report["candidate"], report["accept_at"], report["failed"]) == ("strict", 0, 10)
    assert report["false_accepts"]["low"] < 0.1 < report["false_accepts"]["high"]
    assert "400: image too large" in report["failures"][0]["why"]
    assert (run / "audits" / "strict.json").is_file()
    assert re.fullmatch(r"<i>Game</i> \d+\.", report["cases"][0]["why"])
    page = html.read_text()
    assert "&lt;i&gt;Game&lt;/i&gt;" in page
    assert "<i>" not in page
    assert page.count("data:image/webp") == len(report["cases"]) > 10
    one = replay.open(run).episode("train-00001-g000-m00").episode
    assert {case["frame"] for case in report["cases"]} == {*one.final_frames}
    (tmp_path / "job.yaml").write_text(json.dumps({"rewards": [judge], "seed": 3}))
    assert agentrl(["audit", str(run), "--judge", str(tmp_path / "job.yaml"), "--last", "4"]) == 1
    assert "no episode could be scored" in capsys.readouterr().err


def test_the_command_prints_shares_with_intervals(run, planted, capsys):
    assert agentrl(["audit", str(run), "--judge", f"{planted}:score", "--name", "mine"]) == 0
    out = capsys.readouterr().out
    accepts, failed, *_ = expected_shares(0.1)
    assert f"({accepts} of {failed}; 95% interval" in out
    assert "30 episodes without ground truth" in out
    assert agentrl(["audit", str(run), "--judge", "reward", "--truth-at", "2"]) == 0
    assert "false rejects  unknown, as no episode succeeded" in capsys.readouterr().out
    assert (run / "audits" / "mine.json").is_file()
    before = (run / "audits" / "reward.json").read_bytes()
    assert agentrl(["audit", str(run), "--judge", "reward", "--accept-at", "0.25"]) == 0
    assert "accepted if    score >= 0.25; true if success >= 1\n" in capsys.readouterr().out
    assert (run / "audits" / "reward.json").read_bytes() == before
    assert (run / "audits" / "reward-2.json").is_file()
    assert agentrl(["audit", str(run), "--judge", "reward", "--name", "../a" * 90]) == 0
    assert {file.parent for file in run.rglob("*a---a.json")} == {run / "audits"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--judge", "reward", "--truth", "scores"], "--truth=scores: no episode has it (did you"),
        (["--judge", "reward/judge"], "--judge=reward/judge: no episode has it"),
        (["--judge", "sight"], "no episode has an audit of screen readings"),
        (["--judge", "judge"], "does not accept its kwargs"),
        (["--judge", "nowhere.yaml"], "nowhere.yaml"),
        (["--judge", "agentrl.rewards.matching:exact"], "were recorded without 'ground_truth'"),
        (["--judge", "reward", "--name", "../"], "--name ../: must contain a letter or digit"),
        (["--judge", "reward", "--html", "page.pdf"], "page.pdf"),
    ],
)
def test_invalid_arguments_are_errors(run, capsys, arguments, words):
    assert agentrl(["audit", str(run), *arguments]) != 0
    assert words in capsys.readouterr().err


def test_what_was_read_from_screens_is_audited_by_fact(tmp_path, capsys):
    right = {"agreed": ["lamp", "cards"], "differs": {}}
    wrong = {"agreed": ["cards"], "differs": {"lamp": {"read": "red", "true": "blue"}}}
    with Recorder(tmp_path / "run") as recorder:
        for number in range(4):
            turns = tuple(turn(info={"audit": found}) for found in (right, wrong)[: 1 + number % 2])
            one = ScoredEpisode(
                episode=episode(f"e{number}", turns=turns), components={},
                rewards=(0.0,) * len(turns),
            )  # fmt: skip
            recorder.episode(one, split="eval", step=0)
    report = audit(capsys, tmp_path / "run", "--judge", "sight")
    assert (report["agreement"]["count"], report["agreement"]["of"]) == (2, 4)
    assert report["facts"]["lamp"] | {"low": 0, "high": 1} == {
        "agreed": 4, "of": 6, "low": 0, "high": 1,
    }  # fmt: skip
    assert [case["id"] for case in report["cases"]] == ["e1", "e3"]
    assert agentrl(["audit", str(tmp_path / "run"), "--judge", "sight"]) == 0
    assert "lamp" in capsys.readouterr().out


def test_shares_of_nothing_are_unknown():
    report = report_on("reward", Comparison(), [])
    assert report.agreement.share is None
    assert report.cases == []
