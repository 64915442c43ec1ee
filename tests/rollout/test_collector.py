import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from agentrl.config import RewardConfig
from agentrl.errors import RewardError, WorldError
from agentrl.rollout.collector import CollectionProgress, Collector, requests_of_step
from agentrl.rollout.failure_log import FailureLog
from agentrl.rollout.scoring import RewardFunctions
from agentrl.types import Episode, Outcome, Turn, cause
from agentrl.worker_threads import Workers


def turn(reward=1.0):
    return Turn(
        prompt_ids=(1,),
        reply_ids=(2, 3),
        reply_logprobs=(-1.0, -1.0),
        reply_versions=(0, 0),
        reply="x",
        images=(),
        shown="",
        frames=(),
        action=0,
        parse_error=None,
        env_reward=reward,
        state_key=None,
    )


def episode_of(request, outcome=Outcome.TERMINATED, turns=1):
    return Episode(
        id=request.id,
        env_id="X-v0",
        seed=request.seed,
        group=request.group_id,
        member=request.member,
        reset_info={},
        instructions="",
        turns=(turn(),) * turns,
        final_shown="",
        final_frames=(),
        outcome=outcome,
        error=None if outcome is Outcome.TERMINATED else "DeviceOffline: broken",
        device=None,
    )


def collector(play, *, concurrency=4, max_refills=4, on_episode_end=lambda t, s: None, score=None):
    progress = CollectionProgress()
    tested = Collector(
        play,
        score or RewardFunctions([]).score,
        concurrency,
        max_refills,
        on_episode_end,
        progress,
        Workers("s"),
    )
    return tested, progress


async def test_episodes_return_in_the_order_of_their_requests():
    async def play(request):
        await asyncio.sleep(0.001 * (7 - request.member))
        return episode_of(request)

    requests = requests_of_step("train", 1, [5, 6], 4)
    tested, progress = collector(play, concurrency=8)
    episodes = await tested.collect(requests)
    assert [e.episode.id for e in episodes] == [t.id for t in requests]
    assert (progress.episodes, progress.turns, progress.tokens) == (8, 8, 16)


async def test_no_more_episodes_are_in_flight_than_allowed_and_none_waits_for_another():
    running = peak = 0
    slow = asyncio.Event()

    async def play(request):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if request.member == 0:
            await slow.wait()
        elif request.member == 9:
            slow.set()  # all others end while the first is still playing
        else:
            await asyncio.sleep(0)
        running -= 1
        return episode_of(request)

    tested, _ = collector(play, concurrency=3)
    await asyncio.wait_for(tested.collect(requests_of_step("train", 1, [5], 10)), 5)
    assert peak == 3


async def test_void_episode_is_recorded_and_played_again():
    seen = []

    async def play(request):
        broken = request.member == 1 and request.attempt == 0
        return episode_of(request, Outcome.DEVICE_ERROR if broken else Outcome.TERMINATED)

    tested, progress = collector(play, on_episode_end=lambda t, s: seen.append(s.episode.id))
    episodes = await tested.collect(requests_of_step("train", 1, [5], 3))
    assert not any(e.episode.outcome.void for e in episodes)
    assert episodes[1].episode.id.endswith("m01-r1")
    assert len(seen) == len(set(seen)) == 4
    assert progress.void == {"DeviceOffline": 1}


async def test_refills_are_bounded():
    async def play(request):
        return episode_of(request, Outcome.TIMEOUT if request.member == 1 else Outcome.TERMINATED)

    tested, progress = collector(play, max_refills=2)
    episodes = await tested.collect(requests_of_step("train", 1, [5], 3))
    assert [e.episode.outcome.void for e in episodes] == [False, True, False]
    assert progress.episodes == 5


async def test_step_without_one_valid_episode_is_an_error_that_names_the_cause():
    async def play(request):
        return episode_of(request, Outcome.DEVICE_ERROR)

    tested, _ = collector(play, max_refills=0)
    with pytest.raises(WorldError, match=r"3 of 3 episodes are void .*: 3 x DeviceOffline: broken"):
        await tested.collect(requests_of_step("train", 1, [5], 3))


@pytest.mark.parametrize("value", [float("nan"), [1.0, 2.0, 3.0]])
async def test_invalid_reward_voids_the_episode(value):
    async def play(request):
        return episode_of(request, turns=2)

    scorer = RewardFunctions([RewardConfig(function="tests.rollout.rewards:given")])

    def score(episode):
        if episode.member == 0:
            episode = replace(episode, reset_info={"value": value})
        return scorer.score(episode)

    tested, _ = collector(play, max_refills=0, score=score)
    episodes = await tested.collect(requests_of_step("train", 1, [5], 2))
    assert [e.episode.outcome for e in episodes] == [Outcome.ENV_ERROR, Outcome.TERMINATED]
    assert episodes[0].rewards == (0.0, 0.0)
    assert "RewardError" in episodes[0].episode.error


async def test_identical_failures_are_logged_once_with_their_number(caplog):
    async def play(request):
        return episode_of(request)

    def score(episode):
        if episode.member < 3:
            raise RewardError("reward format: no key 'changed'")
        return RewardFunctions([]).score(episode)

    tested, _ = collector(play, max_refills=2, score=score)
    await tested.collect(requests_of_step("train", 1, [5], 8))
    first, more = (record.message for record in caplog.records)
    assert "discarded after 1 turns: RewardError: reward format: no key 'changed'" in first
    assert more.startswith("4 more episodes discarded for the same reason: RewardError: ")


async def test_a_failure_of_an_earlier_collection_is_only_counted(caplog):
    async def play(request):
        return episode_of(
            request, Outcome.DEVICE_ERROR if request.member == 0 else Outcome.TERMINATED
        )

    failures = FailureLog()
    for step in (1, 2):
        await Collector(
            play, RewardFunctions([]).score, 4, 0, lambda t, s: None, CollectionProgress(),
            Workers("s"), failures=failures,
        ).collect(requests_of_step("train", step, [5], 4))  # fmt: skip
    first, more = (record.message for record in caplog.records)
    assert first.endswith("discarded after 1 turns: DeviceOffline: broken")
    assert more == "1 more episode discarded for the same reason: DeviceOffline: broken"


async def test_reward_that_hangs_voids_only_its_own_episode():
    async def play(request):
        return episode_of(request)

    slow = RewardFunctions([RewardConfig(function="tests.rollout.rewards:hangs")])

    def score(episode):
        return slow.score(episode) if episode.member == 0 else RewardFunctions([]).score(episode)

    progress = CollectionProgress()
    tested = Collector(
        play, score, 2, 0, lambda t, s: None, progress, Workers("s"), score_deadline_s=0.2
    )
    episodes = await tested.collect(requests_of_step("train", 1, [5], 3))
    assert [e.episode.outcome.void for e in episodes] == [True, False, False]
    assert "no reward within rollout.reward_deadline_s=0.2 s" in episodes[0].episode.error


@pytest.mark.parametrize(
    ("outcome", "error", "expected"),
    [
        (Outcome.TERMINATED, None, None),
        (Outcome.TIMEOUT, "no end within 5 s", "timeout"),
        (Outcome.DEVICE_ERROR, "DeviceOffline: p1 is offline", "DeviceOffline"),
        (Outcome.DEVICE_ERROR, "AppLeft: call: p1: com.android.dialer came", "call"),
        (Outcome.DEVICE_ERROR, "AppLeft: foreign_app: p1: com.a came", "foreign_app"),
        (Outcome.ENV_ERROR, "EnvError: it broke", "EnvError"),
        (Outcome.ENV_ERROR, None, "env_error"),
    ],
)
def test_void_episodes_are_counted_by_cause(outcome, error, expected):
    assert cause(outcome, error) == expected


def test_void_shares_are_relative_to_all_played_episodes():
    played = CollectionProgress(episodes=8, void=Counter({"call": 2, "timeout": 1}))
    assert played.void_metrics() == {
        "void": 3, "void_share": 3 / 8,
        "void/call": 2, "void_share/call": 2 / 8,
        "void/timeout": 1, "void_share/timeout": 1 / 8,
    }  # fmt: skip
    assert CollectionProgress().void_metrics() == {"void": 0, "void_share": 0}
