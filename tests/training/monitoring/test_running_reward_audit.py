"""The running audit of a job's reward."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agentrl.config import Config, RewardAuditConfig
from agentrl.errors import ConfigError
from agentrl.rollout.reward_audit import Verdict
from agentrl.training.monitoring.running_reward_audit import RunningAudit
from agentrl.types import Outcome, ScoredEpisode
from tests.replay.episodes import episode, turn


def played(name, *, accepted, won, **changes):
    info = {"metrics": {} if won is None else {"success": float(won)}}
    value = (float(accepted),)
    return ScoredEpisode(
        episode=episode(name, turns=(turn(info=info),), final_frames=("f" * 32,), **changes),
        components={"judge": value},
        rewards=value,
    )


def step(number, wrong, of, won=False):
    """The episodes of a step, with a number of wrong verdicts."""
    return [
        [played(f"{number}-{n}", accepted=won != (n < wrong), won=won, group=f"{number}-{n}")]
        for n in range(of)
    ]


def audit_of(tmp_path, counts=None, **settings):
    config = RewardAuditConfig(**{"max_false_accept": 0.05, **settings})
    config.validate()
    return RunningAudit(config, [] if counts is None else counts, tmp_path)


def test_a_bound_is_broken_when_the_whole_interval_is_above_it(tmp_path):
    audit, seen = audit_of(tmp_path), []
    for number in range(1, 20):
        metrics = audit.add_step(number, audit.verdicts(step(number, 2, 20)))
        assert metrics["false_accept"] == pytest.approx(0.1)
        seen.append((metrics["false_accept_low"] > 0.05, audit.broken() is not None))
        if seen[-1][1]:
            break
    assert seen[0] == (False, False)
    assert all(above == broken for above, broken in seen)
    assert len(seen) == 4
    why = str(audit.stop(4, audit.broken()))
    assert "8 of 80 episodes that success rates as failures are accepted by reward (10.0%" in why
    assert "5.2% to 18.5%, all above reward_audit.max_false_accept=0.05" in why
    report = json.loads((tmp_path / "audits" / "training.json").read_text())
    assert report["false_accepts"]["count"] == 8
    assert {case["frame"] for case in report["cases"]} == {"f" * 32}
    assert audit.add_step(9, audit.verdicts(step(9, 2, 20)))["episodes"] == 20


def test_few_episodes_prove_nothing(tmp_path):
    audit = audit_of(tmp_path)
    audit.add_step(1, audit.verdicts(step(1, 40, 49)))
    assert audit.broken() is None
    audit.add_step(2, audit.verdicts(step(2, 1, 1)))
    assert audit.broken() is not None


def test_rejected_successes_have_a_bound_of_their_own(tmp_path):
    audit = audit_of(tmp_path, max_false_reject=0.1, reward="reward/judge")
    metrics = audit.add_step(1, audit.verdicts(step(1, 30, 100, won=True)))
    assert (metrics["false_reject"], metrics["agreement"]) == (0.3, 0.7)
    assert "false_accept" not in metrics
    assert "success rates as successes are rejected by reward/judge" in audit.broken()


def test_old_episodes_leave_the_window_so_that_late_hacking_shows(tmp_path):
    counts = []
    audit = audit_of(tmp_path, counts, window=100)
    for number in range(1, 51):
        audit.add_step(number, audit.verdicts(step(number, 0, 20)))
    assert audit.add_step(50, audit.verdicts(step(50, 0, 20)))["episodes"] == 100
    for number in range(51, 54):
        audit.add_step(number, audit.verdicts(step(number, 5, 20)))
    assert audit.broken() is not None  # 15 of 100, and would be 15 of 1,060


def test_a_resumed_job_goes_on_counting_and_replaces_repeated_steps(tmp_path):
    counts = []
    audit = audit_of(tmp_path, counts)
    for number in (1, 2, 3):
        audit.add_step(number, audit.verdicts(step(number, number, 20)))
    resumed = audit_of(tmp_path, json.loads(json.dumps(counts)))
    assert resumed.add_step(3, resumed.verdicts(step(3, 0, 20)))["false_accept"] == 0.05


def test_void_episodes_and_unknown_truths_are_not_counted(tmp_path):
    audit = audit_of(tmp_path)
    group = [
        played("void", accepted=True, won=False, outcome=Outcome.ENV_ERROR),
        played("unknown", accepted=True, won=None),
        played("known", accepted=True, won=True),
    ]
    (verdict,) = audit.verdicts([group])
    assert verdict.id == "known"
    assert audit.add_step(1, [verdict])["episodes"] == 1
    assert audit.verdicts([[group[0]]]) == []
    with pytest.raises(ConfigError, match=r"reward_audit.truth=success: no episode has it"):
        audit.verdicts([[group[1]]])
    other = audit_of(tmp_path, reward="reward/juge")
    with pytest.raises(ConfigError, match=r"reward_audit.reward=reward/juge: .* 'reward/judge'"):
        other.verdicts([group])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_false_accept": 5}, "reward_audit.max_false_accept=5: must be below 1, or null"),
        ({"max_false_reject": -0.1}, "reward_audit.max_false_reject=-0.1"),
        ({"min_episodes": 0}, "reward_audit.min_episodes=0: must be above 0"),
        ({"window": 10}, "reward_audit.window=10: must be at least reward_audit.min_episodes=50"),
        ({"truth": "reward"}, "is the audited reward itself"),
    ],
)
def test_invalid_settings_are_errors(settings, words):
    with pytest.raises(ConfigError) as caught:
        replace(Config(), reward_audit=RewardAuditConfig(**settings)).validate()
    assert words in str(caught.value)


GROUPS, SIBLINGS = 16, 8


def stopped_jobs(tmp_path, rate, bound, jobs=40, steps=25):
    """How many jobs stop if the reward is wrong for a share of the rows, about all siblings."""

    def verdicts(group, wrong):
        one = Verdict(
            id="e", group=str(group), score=1.0, truth=0.0, accepts=bool(wrong), succeeded=False
        )
        return [one] * SIBLINGS

    rng, stopped = np.random.default_rng(0), 0
    for _ in range(jobs):
        audit = audit_of(tmp_path, max_false_accept=bound)
        for number in range(1, steps + 1):
            wrong = rng.random(GROUPS) < rate
            audit.add_step(number, [v for g in range(GROUPS) for v in verdicts(g, wrong[g])])
            if audit.broken() is not None:
                stopped += 1
                break
    return stopped


def test_siblings_that_are_judged_alike_count_as_one_piece_of_evidence(tmp_path):
    assert stopped_jobs(tmp_path, 0.02, bound=0.05) <= 1
    assert stopped_jobs(tmp_path, 0.05, bound=0.02) >= 38
