"""Plays and scores a few episodes before a job, to check rewards and prompt lengths."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl import event_loop
from agentrl.actions.players.noop_player import NOOP
from agentrl.config import (
    DevicesConfig,
    ModelConfig,
    RolloutConfig,
    WarmStartConfig,
)
from agentrl.data.reward_inputs import CHATML, ROW, QueryFormat
from agentrl.errors import ConfigError, RewardError, WorldError
from agentrl.extension_points import REWARD
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models.model_source import is_on_hub, tokenizer_folder
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.scripted_policy import reply_ids_within
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.rollout.rewards.reward_names import asks_a_server
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.rollout_plan import PlayTask, RolloutPlan
from agentrl.rollout.run_episode import NO_ROOM, EpisodeRequest
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.training import env_seeds
from agentrl.training.demonstrations.demonstration_filter import SelectedEpisode
from agentrl.training.plan.first_prompts import check_first_prompts
from agentrl.training.plan.long_prompts import skip_long_prompts
from agentrl.training.privileged_teacher import PrivilegedTeacher
from agentrl.types import Episode

log = logging.getLogger(__name__)

_BUDGET_S = 5.0
"""Seconds after which no further episodes are started."""
_MAX_EPISODES, _OTHER_EPISODES = 1000, 64
"""Maximum number of episodes for a job with demonstrations, and for other jobs."""
_MAX_TURNS = 20
_OPENING_TURNS = 2
_ROWS_SEARCHED = 20
"""Number of rows whose columns are read, because a row may lack some columns."""
_AT_ONCE = 8
_ON_PHONES_AT_ONCE = 2


@dataclass(slots=True, kw_only=True)
class LengthReport:
    """Lengths of a job's prompts and replies, measured before the job starts."""

    measured: dict[str, str] = field(default_factory=dict)
    """Measured lengths with their limits, and the result of the chat template check."""
    unchecked: list[str] = field(default_factory=list)


def check_lengths(
    play: RolloutPlan, warm: WarmStartConfig | None, recorded: Sequence[SelectedEpisode]
) -> LengthReport:
    """Measure a conversation, the recorded demonstrations and a few episodes of a scripted player.

    The episodes are played in this process or on a virtual phone, never on a real phone.

    Args:
        play: the job; its model has been checked.
        warm: the pending warm start, if any.
        recorded: the warm start's recorded demonstrations.

    Raises:
        ConfigError: the tokenizer cannot be used or does not have `rollout.stop`, the first
            prompt does not fit into `rollout.max_context`, a demonstration does not fit into
            `rollout.max_new_tokens`, or an episode cannot be scored.
        WorldError: the environment cannot be played.
    """
    model = play.settings.model
    if is_on_hub(model):
        what = "tokenizer, chat template and length of prompts and replies"
        return LengthReport(unchecked=[f"{what}: model.path={model.path} is not local"])
    report = LengthReport()
    with TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = tokenizer_folder(model, Path(scratch))
        encoder = open_encoder(model, folder)
        encoder.stop_ids(play.settings.rollout.stop)
        report.unchecked += encoder.model_adapter.notes
        if model.path != "tiny" or model.adapter != "auto":
            strict = model.chat in ("auto", "template")
            report.measured["chat template"] = check_template(encoder, folder, strict=strict)
        play = skip_long_prompts(play, folder)
        env = play.tasks[""].train
        if recorded:
            _check_recorded(encoder, recorded, play.settings.rollout.max_new_tokens, report)
        player = _choose_player(env, warm)
        if player is None:
            report.unchecked.append(f"length of prompts and replies: {env.id} has no player")
        elif not is_playable_here(env, play.settings.devices):
            report.unchecked.append(f"length of prompts and replies: {env.id} needs a phone")
        else:
            episodes = event_loop.run(_measure_play(play, folder, warm, player, report))
            if asks_a_server(play.tasks[""].rewards):
                report.unchecked.append("whether the reward server scores an episode")
            elif episodes and play.tasks[""].rewards:
                with _loaded_rewards(play, encoder.query_format) as rewards:
                    _check_scoring(rewards, episodes[0], player)
            if warm and warm.player and len(episodes) < warm.episodes:
                left = warm.episodes - len(episodes)
                report.unchecked.append(f"length of {left:,} other demonstrations of {player!r}")
    return report


def check_rewards(plan: RolloutPlan) -> None:
    """Load a job's rewards, and score an episode of a scripted player with them.

    The check is skipped for built-in rewards of built-in games, which are known to work, and if the
    environment has no player, needs a phone, or cannot be played now.

    Args:
        plan: plan of a job with one environment; environment and model have been checked.

    Raises:
        ConfigError: a reward cannot be loaded, or cannot score the episode.
    """
    task = plan.tasks[""]
    targets = [REWARD.target(reward.function) for reward in task.rewards]
    is_game_of_ours = task.train.app is not None
    is_known = not targets or (is_game_of_ours and all(t.startswith("agentrl.") for t in targets))
    player = _choose_player(task.train, None)
    if (
        is_known
        or player is None
        or not is_playable_here(task.train, plan.settings.devices)
        or asks_a_server(plan.tasks[""].rewards)
    ):
        load_and_check_rewards(plan)
        return
    # A model that is not downloaded yet is needed only to write the player's replies.
    if is_on_hub(plan.settings.model):
        plan = replace(plan, settings=replace(plan.settings, model=ModelConfig()))
    with TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = tokenizer_folder(plan.settings.model, Path(scratch))
        encoder = open_encoder(plan.settings.model, folder)
        with _loaded_rewards(plan, encoder.query_format) as rewards:
            _check_columns(rewards, task)
            try:
                episodes = event_loop.run(_play_one(plan, folder, player))
            except WorldError as error:
                log.warning("rewards cannot be checked before the job starts: %s", error)
                return
            if episodes:
                _check_scoring(rewards, episodes[0], player)


def check_privileged(plan: RolloutPlan, text: str) -> None:
    """Show the first turns of an episode to a teacher that reads the true state.

    Skipped for an environment that needs a real phone, where the job does so when it begins, and
    with a warning if the environment cannot be played now.

    Args:
        plan: plan of a job with one environment; environment and model have been checked.
        text: `algorithm.privileged`.

    Raises:
        ConfigError: the environment's info lacks an entry, or no text can be added to its prompts.
    """
    if not is_playable_here(plan.tasks[""].train, plan.settings.devices):
        return
    if is_on_hub(plan.settings.model):
        plan = replace(plan, settings=replace(plan.settings, model=ModelConfig()))

    async def play(folder: Path) -> list[Episode]:
        async with _small_worker(plan, folder, 1) as worker:
            return await play_opening(worker, plan, "")

    with TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = tokenizer_folder(plan.settings.model, Path(scratch))
        encoder = open_encoder(plan.settings.model, folder)
        try:
            episodes = event_loop.run(play(folder))
        except WorldError as error:
            log.warning("algorithm.privileged cannot be checked before the job starts: %s", error)
            return
    PrivilegedTeacher(text, encoder, lambda sequences: []).check(episodes)


async def play_opening(rollouts: Rollouts, plan: RolloutPlan, name: str) -> list[Episode]:
    """Play the first turns of a training episode with a scripted player, without recording them.

    Args:
        rollouts: plays the episode.
        plan: the job.
        name: the environment's name in `mixture`; empty for the job's own.
    """
    player = _choose_player(plan.tasks[name].train, None) or NOOP
    seeds = env_seeds.demonstration_seeds(plan.settings.seed, 1)
    requests = requests_of_step("train", 0, seeds, 1, "opening", envs=[name])
    # The second turn starts with the info of a step, which may lack what a reset's has.
    opening = [replace(one, opening_turns=_OPENING_TURNS) for one in requests]
    return [scored.episode for scored in await rollouts.collect(opening, player)]


def load_and_check_rewards(plan: RolloutPlan) -> None:
    """Check that a job's rewards can be loaded, and that the data has the columns they need.

    Raises:
        ConfigError: a reward cannot be loaded, or the data lacks a column.
    """
    with _loaded_rewards(plan, CHATML) as rewards:
        _check_columns(rewards, plan.tasks[""])


def _loaded_rewards(plan: RolloutPlan, form: QueryFormat) -> RewardFunctions:
    return RewardFunctions(plan.tasks[""].rewards, plan.settings.rollout.reward_deadline_s, form)


def _check_columns(rewards: RewardFunctions, task: PlayTask) -> None:
    """Check that rows have the columns that rewards read, if rows are known before any episode."""
    if not rewards.require_columns and not rewards.need_answers:
        return
    for env in (task.train, task.held_out):
        infos = [one.info for one in islice(env.first_observations(), _ROWS_SEARCHED)]
        if columns := {name for info in infos for name in info.get(ROW, ())}:
            has_answers = any("ground_truth" in info for info in infos)
            rewards.check_columns(columns, has_answers=has_answers)


async def _measure_play(
    play: RolloutPlan,
    folder: Path,
    warm: WarmStartConfig | None,
    player: str,
    report: LengthReport,
) -> list[Episode]:
    """Measure first prompts of evaluations, and episodes of a player, which are returned."""
    at_once = _ON_PHONES_AT_ONCE if play.tasks[""].train.app is not None else _AT_ONCE
    async with _small_worker(play, folder, at_once) as worker:
        # The environments of a mixture are not played here.
        own = replace(play, tasks={"": play.tasks[""]})
        firsts = await check_first_prompts(worker, own)
        requests = _requests(warm, play.settings.seed)
        episodes = await _play_in_time(worker, requests, at_once, player)
    for ring in play.rings:
        if ring in firsts:
            report.measured[f"longest first prompt, unseen {ring}"] = f"{firsts[ring]} tokens"
    _measure(episodes, player, play.settings.rollout, report)
    return episodes


async def _play_one(plan: RolloutPlan, folder: Path, player: str) -> list[Episode]:
    async with _small_worker(plan, folder, 1) as worker:
        return await _play_in_time(worker, _requests(None, plan.settings.seed)[:1], 1, player)


@asynccontextmanager
async def _small_worker(
    plan: RolloutPlan, folder: Path, at_once: int
) -> AsyncIterator[RolloutWorker]:
    """Start a worker in this process that plays short episodes of the job without rewards.

    It plays the job's own environment and its rings, but no environment of a mixture.
    """
    job = plan.settings
    small = replace(
        plan,
        tasks={"": _shortened(plan.tasks[""])},
        rings={name: _shortened(ring) for name, ring in plan.rings.items()},
        settings=replace(
            job,
            devices=replace(job.devices, source=f"virtual:{at_once}", hosts={}),
            rollout=replace(job.rollout, launcher="local", actors=1, concurrency=at_once),
        ),
    )
    worker = RolloutWorker(small, folder, None)
    try:
        await worker.start()
        yield worker
    finally:
        await worker.close()


def _shortened(task: PlayTask) -> PlayTask:
    """Return a task with short episodes without rewards, in at most one other process."""

    def short(env: ResolvedEnv) -> ResolvedEnv:
        settings, processes = env.settings, env.settings.processes
        shorter = replace(
            settings,
            max_turns=min(settings.max_turns, _MAX_TURNS),
            horizon=None,
            start=None,
            processes=processes if isinstance(processes, str) else min(processes, 1),
        )
        return replace(env, settings=shorter)

    return replace(task, train=short(task.train), held_out=short(task.held_out), rewards=[])


def _check_scoring(rewards: RewardFunctions, episode: Episode, player: str) -> None:
    """Check that an episode can be scored in the same way as in the job."""
    try:
        rewards.score(episode)
    except RewardError as error:
        raise ConfigError(
            f"rewards: an episode of the player {player!r} cannot be scored: {error}. A new job "
            "scores one episode before it starts, so start any services that its rewards call "
            "first"
        ) from error


def _check_recorded(
    encoder: ChatEncoder, recorded: Sequence[SelectedEpisode], limit: int, report: LengthReport
) -> None:
    lengths = [
        len(reply_ids_within(limit, encoder, reply))
        for selected in recorded
        for turn, reply in zip(selected.episode.turns, selected.replies, strict=True)
        if turn.parse_error is None and turn.guide is None
    ]
    report.measured["longest recorded reply"] = (
        f"{max(lengths)} tokens; rollout.max_new_tokens={limit}"
    )


def _choose_player(env: ResolvedEnv, warm: WarmStartConfig | None) -> str | None:
    if warm is not None and warm.player:
        return warm.player
    # Doing nothing measures no reply.
    players = [name for name in env.players if name != NOOP]
    return next((name for name in ("expert", "random", *players) if name in players), None)


def is_playable_here(env: ResolvedEnv, devices: DevicesConfig) -> bool:
    """Return whether an environment can be played without a real phone."""
    if env.app is None:
        return True
    of_hosts = [devices.of_host(host) for host in devices.hosts] or [devices]
    return all(str(one.source).startswith("virtual") for one in of_hosts)


def _requests(warm: WarmStartConfig | None, run_seed: int) -> list[EpisodeRequest]:
    """Return requests for the player's demonstrations, or for training on the same seeds."""
    is_warm = warm is not None and warm.player is not None
    count = min(warm.episodes if warm and is_warm else _OTHER_EPISODES, _MAX_EPISODES)
    seeds = env_seeds.demonstration_seeds(run_seed, count)
    return requests_of_step("demo" if is_warm else "train", 0, seeds, 1)


async def _play_in_time(
    worker: RolloutWorker, requests: Sequence[EpisodeRequest], at_once: int, player: str
) -> list[Episode]:
    """Play as many of the requested episodes as time allows, and return the valid ones."""
    played: list[Episode] = []
    end = time.monotonic() + _BUDGET_S
    while len(played) < len(requests) and time.monotonic() < end:
        some = requests[len(played) :][:at_once]
        played += [scored.episode for scored in await worker.collect(some, player)]
    return [episode for episode in played if not episode.outcome.void]


def _measure(
    episodes: Sequence[Episode], player: str, rollout: RolloutConfig, report: LengthReport
) -> None:
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        report.unchecked.append(f"length of prompts and replies: {player} did not play any turn")
        return
    first = max(len(episode.turns[0].prompt_ids) for episode in episodes if episode.turns)
    if first + rollout.max_new_tokens > rollout.max_context:
        raise ConfigError(f"{NO_ROOM} (the first prompt has {first} tokens)")
    prompt, reply = (max(map(len, lengths)) for lengths in (
        [turn.prompt_ids for turn in turns], [turn.reply_ids for turn in turns],
    ))  # fmt: skip
    of = f"{len(episodes)} episodes of the player {player!r}"
    room = rollout.max_context - rollout.max_new_tokens
    report.measured["longest prompt"] = (
        f"{prompt} tokens in {of}; the limit is {room}, which leaves room for a reply "
        "(rollout.max_context)"
    )
    report.measured["longest reply"] = (
        f"{reply} tokens in {of}; rollout.max_new_tokens={rollout.max_new_tokens}"
    )
    if reply > rollout.max_new_tokens:
        log.warning(
            "rollout.max_new_tokens=%d: replies of the player %r have up to %d tokens, so the "
            "model cannot give the same replies",
            rollout.max_new_tokens,
            player,
            reply,
        )
