import asyncio
import pickle
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl import replay
from agentrl.errors import (
    AppLeft,
    DeviceOffline,
    EnvCrashed,
    EnvError,
    EnvLost,
    RewardError,
    WorldError,
)
from agentrl.replay.recorder import Recorder
from agentrl.rollout.collector import (
    CollectionProgress,
    Collector,
    FailureLog,
    RequestQueue,
    requests_of_step,
)
from agentrl.rollout.rewards.scoring import RewardFunctions, score_or_void
from agentrl.types import Episode, Outcome, ScoredEpisode, Turn


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
        failure=None if outcome is Outcome.TERMINATED else DeviceOffline("broken"),
        device=None,
    )


def scored_of(request):
    return ScoredEpisode(episode=episode_of(request), components={}, rewards=(1.0,))


async def own_reward(episode):
    return RewardFunctions([]).score(episode)


class Worker:
    """Plays with a function that also scores, which may return None; see `EpisodeWorker`."""

    def __init__(self, play, room, number=0):
        self._play, self.room, self.number = play, (room, room), number

    async def wait_until_ready(self):
        return True

    async def play_request(self, request, player, greedy):
        return await self._play(request)


async def collect(play, requests, *, concurrency=4, max_refills=4, score=own_reward, failures=None):
    """Collect with this many slots; also return the progress."""

    async def play_and_score(request):
        return (await score_or_void(score, await play(request)))[0]

    progress = CollectionProgress()
    collector = Collector(requests, max_refills, progress, failures)
    return await collector.collect_from([Worker(play_and_score, concurrency)]), progress


async def test_episodes_return_in_the_order_of_their_requests():
    async def play(request):
        await asyncio.sleep(0.001 * (7 - request.member))
        return episode_of(request)

    requests = requests_of_step("train", 1, [5, 6], 4)
    episodes, progress = await collect(play, requests, concurrency=8)
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

    await asyncio.wait_for(collect(play, requests_of_step("train", 1, [5], 10), concurrency=3), 5)
    assert peak == 3


async def test_void_episode_is_played_again():
    seen = []

    async def play(request):
        seen.append(request.id)
        broken = request.member == 1 and request.attempt == 0
        return episode_of(request, Outcome.DEVICE_ERROR if broken else Outcome.TERMINATED)

    episodes, progress = await collect(play, requests_of_step("train", 1, [5], 3))
    assert not any(e.episode.outcome.void for e in episodes)
    assert episodes[1].episode.id.endswith("m01-r1")
    assert len(seen) == len(set(seen)) == 4
    assert progress.void == {"DeviceOffline": 1}


async def test_refills_are_bounded():
    async def play(request):
        return episode_of(request, Outcome.TIMEOUT if request.member == 1 else Outcome.TERMINATED)

    requests = requests_of_step("train", 1, [5], 3)
    episodes, progress = await collect(play, requests, max_refills=2)
    assert [e.episode.outcome.void for e in episodes] == [False, True, False]
    assert progress.episodes == 5


async def test_what_may_have_crashed_a_process_is_played_again_alone_and_at_the_end():
    """Seed 5 ends the process in which all episodes are played."""
    begun, playing, hit, crashed = [], set(), set(), asyncio.Event()

    async def play(request):
        begun.append((request.seed, set(playing)))
        playing.add(request.id)
        if request.seed == 5:
            hit.update(playing)
            crashed.set()
        await crashed.wait()
        await asyncio.sleep(0)
        playing.remove(request.id)
        if request.id not in hit:
            return episode_of(request)
        failure = EnvLost("gone") if request.seed % 2 == 0 else EnvCrashed("ended with SIGKILL")
        return replace(episode_of(request, Outcome.ENV_ERROR), failure=failure)

    requests = requests_of_step("train", 1, range(8), 1)
    episodes, progress = await collect(play, requests, max_refills=0, concurrency=6)
    assert [e.episode.seed for e in episodes if e.episode.outcome.void] == [5]
    assert {seed for seed, _ in begun[-3:]} == {1, 3, 5}
    assert all(not others for _, others in begun[-3:])
    assert progress.void == {"EnvLost": 3, "EnvCrashed": 4}


async def test_step_without_one_valid_episode_is_an_error_that_names_the_cause():
    async def play(request):
        return episode_of(request, Outcome.DEVICE_ERROR)

    with pytest.raises(WorldError, match=r"3 of 3 episodes are void .*: 3 x DeviceOffline: broken"):
        await collect(play, requests_of_step("train", 1, [5], 3), max_refills=0)


async def test_an_episode_that_cannot_be_scored_is_void():
    async def play(request):
        return episode_of(request, turns=2)

    async def score(episode):
        if episode.member == 0:
            raise RewardError("no reward within 1 s")
        return await own_reward(episode)

    requests = requests_of_step("train", 1, [5], 2)
    episodes, _ = await collect(play, requests, max_refills=0, score=score)
    assert [e.episode.outcome for e in episodes] == [Outcome.ENV_ERROR, Outcome.TERMINATED]
    assert episodes[0].rewards == (0.0, 0.0)
    assert episodes[0].episode.error == "RewardError: no reward within 1 s"


async def test_identical_failures_are_logged_once_with_their_number(caplog):
    async def play(request):
        return episode_of(request)

    async def score(episode):
        if episode.member < 3:
            raise RewardError("reward format: no key 'changed'")
        return await own_reward(episode)

    await collect(play, requests_of_step("train", 1, [5], 8), max_refills=2, score=score)
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
        requests = requests_of_step("train", step, [5], 4)
        await collect(play, requests, max_refills=0, failures=failures)
    first, more = (record.message for record in caplog.records)
    assert first.endswith("discarded after 1 turns: DeviceOffline: broken")
    assert more == "1 more episode discarded for the same reason: DeviceOffline: broken"


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    rooms=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    deaths=st.sets(st.integers(1, 30), max_size=5),
)
@settings(deadline=None)
def test_what_dying_workers_were_playing_is_played_again_and_counts_once(sizes, rooms, deaths):
    requests = [
        request
        for group, size in enumerate(sizes)
        for request in requests_of_step("train", 1, [group], size, first=group)
    ]
    begun = 0
    ended = []

    async def play(request):
        nonlocal begun
        begun += 1
        dies = begun in deaths
        await asyncio.sleep(0)
        if dies:
            return None
        ended.append(request.id)
        return scored_of(request)

    async def collect_all():
        collector = Collector(requests, 0, CollectionProgress())
        workers = [Worker(play, room, number) for number, room in enumerate(rooms)]
        return await asyncio.wait_for(collector.collect_from(workers), 10)

    episodes = asyncio.run(collect_all())
    assert [one.episode.id for one in episodes] == [one.id for one in requests]
    assert sorted(ended) == sorted(one.id for one in requests)


async def test_a_worker_that_is_being_replaced_is_not_waited_for_once_all_is_played():
    class Lost(Worker):
        async def wait_until_ready(self):
            await asyncio.Event().wait()

    async def play(request):
        return scored_of(request)

    collector = Collector(requests_of_step("train", 1, [5], 4), 0, CollectionProgress())
    workers = [Lost(play, 2, 0), Worker(play, 2, 1)]
    assert len(await asyncio.wait_for(collector.collect_from(workers), 10)) == 4


async def test_of_several_failed_workers_the_first_error_keeps_its_cause_and_others_are_logged(
    caplog,
):
    class Lost(Worker):
        async def wait_until_ready(self):
            await asyncio.sleep(0)
            if self.number == 0:
                raise WorldError("first") from OSError("the cause")
            raise RewardError("second")

    collector = Collector(requests_of_step("train", 1, [5], 2), 0, CollectionProgress())
    with pytest.raises(WorldError, match="first") as raised:
        await collector.collect_from([Lost(None, 1, 0), Lost(None, 1, 1)])
    assert isinstance(raised.value.__cause__, OSError)
    assert "another worker failed as well: RewardError: second" in caplog.text


async def test_a_worker_that_gave_up_is_given_no_requests():
    class GaveUp(Worker):
        async def wait_until_ready(self):
            return False

    async def play(request):
        return scored_of(request)

    collector = Collector(requests_of_step("train", 1, [5], 4), 0, CollectionProgress())
    workers = [GaveUp(None, 2, 0), Worker(play, 1, 1)]
    assert len(await asyncio.wait_for(collector.collect_from(workers), 10)) == 4


def test_a_worker_continues_its_groups_and_helps_others_at_the_end():
    queue = RequestQueue(requests_of_step("train", 1, [5, 6, 7], 3))
    taken = [(worker, queue.take(worker)[1].group) for worker in (0, 1, 0, 0, 0, 0, 0, 0, 1)]
    assert taken == [(0, 0), (1, 1), (0, 0), (0, 0), (0, 2), (0, 2), (0, 2), (0, 1), (1, 1)]
    assert not queue


@pytest.mark.parametrize(
    ("outcome", "failure", "expected"),
    [
        (Outcome.TERMINATED, None, None),
        (Outcome.TIMEOUT, None, "timeout"),
        (Outcome.DEVICE_ERROR, DeviceOffline("p1 is offline"), "DeviceOffline"),
        (Outcome.DEVICE_ERROR, AppLeft("call", "p1: com.android.dialer came"), "call"),
        (Outcome.DEVICE_ERROR, AppLeft("foreign_app", "p1: com.a came"), "foreign_app"),
        (Outcome.ENV_ERROR, EnvError("it: broke"), "EnvError"),
    ],
)
def test_void_episodes_are_counted_by_cause_also_if_recorded(outcome, failure, expected, tmp_path):
    (request,) = requests_of_step("train", 1, [5], 1)
    error = "no end within 5 s" if failure is None else f"{type(failure).__name__}: {failure}"
    episode = replace(episode_of(request, outcome), failure=failure, error=error)
    sent = pickle.loads(pickle.dumps(episode))
    assert (sent.cause, str(sent.failure)) == (expected, str(failure))
    with Recorder(tmp_path) as recorder:
        recorder.episode(replace(scored_of(request), episode=episode), split="train", step=1)
    (summary,) = replay.open(tmp_path).episodes()
    assert summary.cause == expected


def test_void_shares_are_relative_to_all_played_episodes():
    void = Counter({"call": 2, "timeout": 1})
    played = CollectionProgress(episodes=8, void=void, context_full=2)
    assert played.void_metrics() == {
        "void": 3, "void_share": 3 / 8,
        "void/call": 2, "void_share/call": 2 / 8,
        "void/timeout": 1, "void_share/timeout": 1 / 8,
        "context_full": 2 / 8,
    }  # fmt: skip
    nothing = {"void": 0, "void_share": 0, "context_full": 0}
    assert CollectionProgress().void_metrics() == nothing


@pytest.mark.parametrize(
    ("failures", "kind"),
    [
        ([RewardError("no key")] * 2, RewardError),
        ([EnvError("my_game raised")] * 2, EnvError),
        ([RewardError("no key"), DeviceOffline("gone")], WorldError),
    ],
)
async def test_play_that_is_mostly_void_names_the_code_that_failed(failures, kind):
    requests = requests_of_step("eval", 0, [1, 2], 1)

    async def play(request):
        return replace(episode_of(request, Outcome.ENV_ERROR), failure=failures[request.seed - 1])

    with pytest.raises(WorldError) as raised:
        await collect(play, requests, max_refills=0)
    assert raised.type is kind
    assert raised.value.__cause__ is failures[0]
