"""Recorded episodes as the demonstrations of a warm start, of real games with a tiny model."""

import asyncio
import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentrl import config as configuration
from agentrl import replay
from agentrl.actions.players.random_player import RandomPlayer
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_paths import episode_file
from agentrl.training import env_seeds
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.demonstrations import warm_start_cache
from agentrl.training.demonstrations.demonstration_dataset import (
    Demonstration,
    DemonstrationDataset,
    load_labeler,
    rerender_demonstrations,
)
from agentrl.training.demonstrations.demonstration_filter import (
    DemonstrationSelection,
    select_demonstrations,
)
from agentrl.training.evaluation.interactive_play import PlayInterface, play
from agentrl.training.plan.dry_run import describe_plan
from agentrl.training.plan.job_plan import plan_training
from agentrl.training.trainer import train
from agentrl.types import Episode, TokenSequence
from tests.replay import packs

LOCAL = [
    "rollout.launcher=local",
    "rollout.engine=hf",
    "rollout.max_context=4096",
    "rollout.max_new_tokens=80",
    "warm_start.cache=null",
    "rewards=[]",  # the environment's own: no process of reward functions for each job
]
PHONES = ["devices.source=virtual:2", "env.kwargs={rounds: 2}", *LOCAL]
PICTURE = [
    "env.kwargs={size: 5, min_moves: 2, max_steps: 30, observation: both}",
    "model.image_size=null",
    *LOCAL,
]
SMALL = "model.tiny={hidden: 32, layers: 1, heads: 1, kv_heads: 1}"
LAKE = Path(__file__).parents[3] / "configs" / "frozen_lake.yaml"


def lake(folder: Path, *overrides: str) -> Config:
    given = [f"run.dir={folder}", *LOCAL, *overrides]
    return configuration.load(LAKE, given)


def recorded_by(config: Config, *runs: Path, **changes: object) -> Config:
    """The same job, which learns from runs."""
    assert config.warm_start is not None
    given = {"player": None, "recorded": [str(run) for run in runs], **changes}
    return replace(config, warm_start=replace(config.warm_start, **given))


async def played(config: Config, model: Path | None, count: int = 3) -> tuple[Path, list[Episode]]:
    """The demonstrations of a job, and the run where they are recorded."""
    folder = RunFolder.create(config.run, "demos")
    folder.save_config(config.to_dict())
    run = folder.path
    rollouts = RolloutWorker(plan_rollouts(config), model, run)
    await rollouts.start()
    try:
        requests = requests_of_step("demo", 0, env_seeds.demonstration_seeds(config.seed, count), 1)
        assert config.warm_start is not None
        scored = await rollouts.collect(requests, config.warm_start.player)
    finally:
        await rollouts.close()
    return run, [one.episode for one in scored]


def same(one: TokenSequence, other: TokenSequence) -> None:
    assert one.token_ids == other.token_ids
    assert one.sampled_positions == other.sampled_positions
    assert one.logprobs == other.logprobs
    assert len(one.images) == len(other.images)
    for ours, theirs in zip(one.images, other.images, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def random_game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one episode with random actions."""
    config = lake(tmp_path_factory.mktemp("random"), "warm_start.player=random")
    return asyncio.run(played(config, None, count=1))[0]


def samples(episode: Episode) -> list[TokenSequence]:
    return split_into_sequences(episode)


def described(config, *, warm_start_pending=True):
    plan = plan_training(config, warm_start_pending=warm_start_pending, begins=False)
    return describe_plan(plan)


def selected(config: Config) -> DemonstrationSelection:
    return select_demonstrations(
        config.warm_start, resolve_env(config.env), config.model, config.eval
    )


def learnt(config: Config, model: Path) -> list[Demonstration]:
    return rerender_demonstrations(
        selected(config).episodes,
        resolve_env(config.env),
        open_encoder(config.model, model),
        config.rollout.max_new_tokens,
    )


def dataset_of(
    config: Config, demonstrations: list[Demonstration], model: Path
) -> DemonstrationDataset:
    warm = config.warm_start
    assert warm is not None
    labeler = load_labeler(resolve_env(config.env), warm)
    players = {} if labeler is None else {"": labeler}
    return DemonstrationDataset(
        demonstrations, warm, players, open_encoder(config.model, model), seed=5
    )


@pytest.mark.parametrize(
    ("name", "frames", "overrides"),
    [
        ("number_game", "device", ["env.history=window:1", *PHONES]),
        (
            "number_game",
            "model",
            ["env.history=concat", "env.translator_kwargs={instruct: true}", *PHONES],
        ),
        (
            "number_game_memory",
            "device",
            [
                "env.history=compact:2",
                "env.player_kwargs={notes: true}",
                "env.kwargs.rounds=2",
                *PHONES,
            ],
        ),
        ("sokoban", "model", ["env.history=window:2", *PICTURE]),
        (
            "sokoban",
            "device",
            ["env.history=concat", "env.translator_kwargs={instruct: true}", *PICTURE],
        ),
    ],
    ids=["phones window", "phones concat", "phones compact", "room window", "room concat"],
)
async def test_recorded_episodes_give_the_tokens_and_pixels_that_were_played(
    adb_server, tiny_vlm, tmp_path, name, frames, overrides
):
    where = [f"run.dir={tmp_path}", f"run.frames={frames}"]
    config = configuration.load(name, [*overrides, *where])
    run, live = await played(config, tiny_vlm)
    again = learnt(recorded_by(config, run), tiny_vlm)
    by_id = {one.episode.id: one.episode for one in again}
    assert by_id.keys() == {episode.id for episode in live}
    for episode in live:
        ours, theirs = samples(by_id[episode.id]), samples(episode)
        assert len(ours) == len(theirs) > 0
        assert any(sample.images for sample in ours)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)

    # And so the steps of the warm start are the same, even if the player is asked again.
    both = recorded_by(config, run, player=config.warm_start.player)
    again = {one.episode.id: one for one in learnt(both, tiny_vlm)}
    assert all(one.by_player for one in again.values())
    from_record = dataset_of(both, [again[episode.id] for episode in live], tiny_vlm)
    from_play = [Demonstration(episode=episode, by_player=True) for episode in live]
    drawn = zip(from_record.draw(8), dataset_of(both, from_play, tiny_vlm).draw(8), strict=True)
    for one, other in drawn:
        same(one, other)


def answers(*said: str) -> PlayInterface:
    """Somebody who says this and stops."""
    left = iter(said)
    return PlayInterface(
        show_instructions=lambda words: None,
        show_error=lambda words: None,
        show_message=lambda message: None,
        show_turn=lambda turn: None,
        read_input=lambda: next(left, None),
    )


def human(config: Config, *said: str) -> Path:
    return play(config, answers(*said))[1]


WAY = ("down", "down", "right", "right", "down", "right")


def test_episodes_of_a_person_are_converted_to_the_action_format_of_the_job(tiny_vlm, tmp_path):
    run = human(lake(tmp_path), *WAY)
    for style, reply in (
        ("tag", "<action>down</action>"),
        ("tool", '<tool_call>{"name": "down", "arguments": {}}</tool_call>'),
    ):
        config = lake(tmp_path, f"env.translator_kwargs.style={style}")
        config = recorded_by(config, run)
        plan_training(config, warm_start_pending=True)
        (one,) = learnt(config, tiny_vlm)
        assert not one.by_player
        assert [turn.reply.count("down") for turn in one.episode.turns] == [1, 1, 0, 0, 1, 0]
        assert one.episode.turns[0].reply == reply
        encoder = open_encoder(config.model, tiny_vlm)
        first = samples(one.episode)[0]
        reply_tokens = [first.token_ids[place] for place in first.sampled_positions]
        assert tuple(reply_tokens) == encoder.reply_ids(reply)


def test_taps_of_a_person_are_converted_to_either_action_format(adb_server, tiny_vlm, tmp_path):
    where = [f"run.dir={tmp_path}", *PHONES]
    asked = "env.translator_kwargs={style: tool}"
    run = human(configuration.load("number_game", [asked, *where]), "tap(0.5, 0.60)", "tap(0.1, 1)")
    said = '<tool_call>{"name": "tap", "arguments": {"x": 0.5, "y": 0.60}}</tool_call>'
    for override, reply in ((asked, said), ("env.id=NumberGame-v0", None)):
        config = configuration.load("number_game", [override, *where])
        (one,) = learnt(recorded_by(config, run), tiny_vlm)
        assert one.episode.turns[0].reply == reply or "<action>tap(0.5, 0.6)</action>"
        assert [image.shape for image in one.episode.turns[0].images] == [(140, 84, 3)]


def test_turns_of_a_person_are_never_relabeled_and_are_weighted_by_phase(
    adb_server, tiny_vlm, tmp_path
):
    config = configuration.load("number_game", [f"run.dir={tmp_path}", *PHONES])
    run = human(config, "tap(0.17, 0.7)", "tap(0.01, 0.01)")
    config = recorded_by(config, run, player="expert", phase_weights={"reveal": 0.0})
    demonstrations = learnt(config, tiny_vlm)
    assert not any(one.by_player for one in demonstrations)
    turns = demonstrations[0].episode.turns
    before = [demonstrations[0].episode.reset_info, *(turn.info for turn in turns)]
    kept = [
        turn.prompt_ids + turn.reply_ids
        for turn, info in zip(turns, before, strict=False)
        if info["phase"] != "reveal"
    ]
    assert 0 < len(kept) < len(turns)
    drawn = dataset_of(config, demonstrations, tiny_vlm).draw(40)
    assert {sample.token_ids for sample in drawn} == set(kept)


async def test_a_player_that_reads_the_observation_is_learned_as_it_played(tiny_vlm, tmp_path):
    """Observations are not recorded, so that it cannot be asked again."""
    players = "env.players={walker: 'tests.rollout.board_players:FrozenLakePlayer'}"
    config = lake(tmp_path, players, "warm_start.player=walker")
    _, episodes = await played(config, tiny_vlm)
    demonstrations = [Demonstration(episode=one, by_player=True) for one in episodes]
    drawn = dataset_of(config, demonstrations, tiny_vlm).draw(60)
    shown = [turn.prompt_ids + turn.reply_ids for one in episodes for turn in one.turns]
    assert {sample.token_ids for sample in drawn} == set(shown)


async def test_instructions_of_the_job_replace_recorded_ones(tiny_vlm, tmp_path, caplog):
    template = tmp_path / "mine.jinja"
    template.write_text("Be brave. {{ instructions }}")
    run, _ = await played(lake(tmp_path, "warm_start.player=random"), None)
    config = recorded_by(lake(tmp_path, f"env.prompt={template}"), run)
    plan_training(config, warm_start_pending=True)
    assert "3 of 3 episodes were played with other instructions" in caplog.text
    encoder = open_encoder(config.model, tiny_vlm)
    for one in learnt(config, tiny_vlm):
        start = encoder.ids(encoder.first_prompt("Be brave.", "user", ("look",))[0])
        assert samples(one.episode)[0].token_ids[: len(start)] == start


def edit(run: Path, number: int, change: Callable[[dict], None]) -> None:
    """Change one recorded episode."""
    file = episode_file(run, replay.open(run).episodes()[number].id)
    tree = json.loads(gzip.decompress(file.read_bytes()))
    change(tree)
    file.write_bytes(gzip.compress(json.dumps(tree).encode()))


def unread(tree: dict, *places: int) -> None:
    for place in places or range(len(tree["turns"])):
        tree["turns"][place] |= {"reply": "hm", "action": None, "parse_error": "it is no action"}


async def test_unusable_episodes_are_skipped_and_logged_once(tiny_vlm, tmp_path, caplog):
    config = lake(tmp_path, "warm_start.player=random")
    run, _ = await played(config, None, count=5)
    edit(run, 0, unread)
    index = next((run / "episodes").glob("index-*.jsonl"))
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    lines[1] |= {"outcome": "env_error", "error": "EnvError: it broke"}
    lines[2]["seed"] = config.eval.first_seed + 3
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = recorded_by(config, run)
    plan_training(config, warm_start_pending=True)
    (message,) = [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()]
    turns = sum(line["turns"] for line in lines[3:])
    assert f"2 episodes with {turns} turns; skipped: 1 without any valid action" in message
    assert ", 1 void, 1 of held-out seeds (eval.first_seed)" in message
    assert described(config)["resolved"]["recorded demonstrations"].startswith("2 episodes")
    assert len(learnt(config, tiny_vlm)) == 2


@pytest.mark.parametrize("history", ["window:1", "window:2", "concat"])
async def test_invalid_replies_appear_only_as_context(
    tiny_vlm, tmp_path, monkeypatch, caplog, history
):
    babble = "Let me think about it for longer than I may. "
    reply = RandomPlayer.reply

    def hesitates(player: RandomPlayer, info: dict, rng: np.random.Generator) -> str:
        return babble if rng.random() < 0.4 else reply(player, info, rng)

    monkeypatch.setattr(RandomPlayer, "reply", hesitates)
    config = lake(tmp_path, "warm_start.player=random", f"env.history={history}")
    run, live = await played(config, tiny_vlm)
    encoder = open_encoder(config.model, tiny_vlm)
    longest = len(encoder.reply_ids("<action>right</action>"))
    config = lake(tmp_path, f"env.history={history}", f"rollout.max_new_tokens={longest}")
    config = recorded_by(config, run)
    plan_training(config, warm_start_pending=True)
    turns = [turn for episode in live for turn in episode.turns]
    readable = [turn for turn in turns if turn.parse_error is None]
    assert f"{len(readable)} turns, and {len(turns) - len(readable)} used only" in caplog.text

    again = {one.episode.id: one for one in learnt(config, tiny_vlm)}
    for episode in live:
        ours = again[episode.id].episode.turns
        assert [turn.prompt_ids for turn in ours] == [turn.prompt_ids for turn in episode.turns]
    drawn = dataset_of(config, list(again.values()), tiny_vlm).draw(80)
    said = {tuple(one.token_ids[place] for place in one.sampled_positions) for one in drawn}
    assert not any(babble.strip() in encoder.text(ids) for ids in said)
    if history == "window:1":
        assert said == {turn.reply_ids for turn in readable}
    else:
        assert any(babble.strip() in encoder.text(one.token_ids) for one in drawn)


def test_episodes_are_selected_with_the_filters_of_the_list(tmp_path):
    run = human(lake(tmp_path), *WAY)
    lost = human(lake(tmp_path), "right", "down")
    config = lake(tmp_path)
    both = recorded_by(config, run, lost)
    where = both.warm_start.recorded_filter
    assert len(selected(both).episodes) == 2
    won = recorded_by(
        config, run, lost, recorded_filter=replace(where, min_reward=1.0, label="human")
    )
    assert [one.run.path for one in selected(won).episodes] == [run]
    none = recorded_by(config, run, lost, recorded_filter=replace(where, label="expert"))
    with pytest.raises(ConfigError, match=r"0 episodes with 0 turns\. The filter is .*'expert'"):
        described(none)
    odd = recorded_by(config, run, recorded_filter=replace(where, split="evl"))
    with pytest.raises(ConfigError, match=r"recorded_filter\.split='evl': must be one of"):
        described(odd)


async def test_replies_with_several_actions_are_demonstrations(tmp_path: Path) -> None:
    several = "env.max_actions_per_reply=3"
    config = lake(tmp_path, "warm_start.player=random", several)
    run, episodes = await played(config, None, count=2)
    assert any(len(turn.chunk) > 1 for episode in episodes for turn in episode.turns)
    recorded = selected(recorded_by(config, run)).episodes
    assert {one.episode.id: one.replies for one in recorded} == {
        one.id: tuple(turn.reply for turn in one.turns) for one in episodes
    }
    single = recorded_by(lake(tmp_path, "warm_start.player=random"), run)
    with pytest.raises(ConfigError, match="is not an action in this job"):
        selected(single)


async def test_replies_with_one_action_are_demonstrations_for_a_job_with_several(
    tmp_path: Path, random_game: Path
) -> None:
    config = lake(tmp_path, "warm_start.player=random", "env.max_actions_per_reply=3")
    (one,) = selected(recorded_by(config, random_game)).episodes
    assert all(one.replies)


@pytest.mark.parametrize(
    ("overrides", "change", "words"),
    [
        (
            ["env.id=CliffWalking-v1", "env.kwargs={}", "eval.rings=null"],
            None,
            "was played in FrozenLake-v1, but .* env.id",
        ),
        (["env.translator_kwargs.names=[a, b, c, d]"], None, "which is not an action in this job"),
        (
            ["env.translator_kwargs.names=[right, down, left, up]"],
            None,
            "which meant .* when it was recorded, but means",
        ),
        ([], unread, "skipped: 1 without any valid action"),
        (
            [],
            lambda tree: tree["turns"][0].update(action=None, parse_error="it is no action"),
            "which meant no action when it was recorded, but means",
        ),
        (
            [],
            lambda tree: tree["turns"][0].update(shown="", frames=[]),
            "skipped: 1 with a private screen",
        ),
    ],
    ids=[
        "another game",
        "other words",
        "other actions",
        "no action",
        "one now",
        "private",
    ],
)
def test_unusable_recordings_are_an_error_before_anything_starts(
    random_game, tmp_path, overrides, change, words
):
    run = tmp_path / "demos"
    shutil.copytree(random_game, run)
    if change is not None:
        edit(run, 0, change)
    config = recorded_by(lake(tmp_path / "jobs", *overrides), run)
    with pytest.raises(ConfigError, match=words):
        described(config)
    with pytest.raises(ConfigError, match=words):
        plan_training(config, warm_start_pending=True)
    plan_training(config)  # a finished warm start no longer needs its recordings


def test_missing_run_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"warm_start\.recorded: .*no such run"):
        described(recorded_by(lake(tmp_path), tmp_path / "nowhere"))


async def test_images_must_have_been_recorded_completely(tmp_path):
    def job(*overrides: str) -> Config:
        return configuration.load("sokoban", [*PICTURE, f"run.dir={tmp_path}", *overrides])

    blind, _ = await played(job("run.frames=none"), None, count=1)
    with pytest.raises(ConfigError, match=r"no images \(run\.frames=none\)"):
        described(recorded_by(job(), blind))
    masked, _ = await played(job("devices.mask=[[0, 0, 1, 0.1]]"), None, count=1)
    with pytest.raises(ConfigError, match=r"masked regions \(devices\.mask\)"):
        described(recorded_by(job(), masked))
    small, _ = await played(job("run.frames=model", "model.max_pixels=800"), None, count=1)
    with pytest.raises(ConfigError, match="a different model's size"):
        described(recorded_by(job(), small))
    lost, (episode,) = await played(job(), None, count=1)
    packs.lose(lost, episode.turns[0].frames[0])
    with pytest.raises(ConfigError, match="skipped: 1 with a missing image file"):
        described(recorded_by(job(), lost))


async def test_cache_depends_on_the_recorded_episodes(tmp_path):
    def folder(**changes: object) -> Path | None:
        job = recorded_by(lake(tmp_path), run, cache=str(tmp_path), **changes)
        episodes, mixture = selected(job).episodes, job.mixture_weights()
        return warm_start_cache.cache_folder(
            job.warm_start,
            job.model,
            [resolve_env(job.env)],
            mixture,
            job.devices,
            job.seed,
            episodes,
        )

    run, _ = await played(lake(tmp_path, "warm_start.player=random"), None)
    before = folder()
    assert folder() == before
    where = lake(tmp_path).warm_start.recorded_filter
    assert folder(recorded_filter=replace(where, split="demo")) != before
    edit(run, 1, lambda tree: tree["turns"][0]["info"].update(phase="first"))
    assert folder() != before


async def test_reply_longer_than_the_models_limit_is_an_error(tiny_vlm, tmp_path):
    run, _ = await played(lake(tmp_path, "warm_start.player=random"), None, count=1)
    config = recorded_by(lake(tmp_path, "rollout.max_new_tokens=2"), run)
    with pytest.raises(ConfigError, match="the warm start trains on"):
        learnt(config, tiny_vlm)


@pytest.mark.slow
def test_job_trains_on_recorded_episodes_only_and_resumes_without_them(tmp_path):
    small = ["train.steps=1", "rollout.group_size=4", "eval.episodes=2", "logging=[file]"]
    small += ["eval.baselines=[]", "checkpoint.every=1"]
    small += ["warm_start.steps=60", "warm_start.batch=12", "warm_start.lr_warmup_steps=5"]
    small += ["env.max_turns=8", "rollout.max_new_tokens=8"]
    run = human(lake(tmp_path), *WAY)
    job = recorded_by(lake(tmp_path / "jobs", *small), run)
    trained = train.train(job).path
    # The lake has no chance: who does what the person did wins.
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["before"]["greedy"]["reward"] == 1
    assert summary["before"]["greedy"]["turns"] == len(WAY)
    assert not [e for e in replay.open(trained).episodes() if e.split == "demo"]
    mark = json.loads((trained / "model" / "agentrl.json").read_text())
    assert mark["warm_starts"]["FrozenLake-v1"]["recorded"] == [str(run)]

    shutil.rmtree(run)
    train.train(job, resume=trained, overrides=["train.steps=2"])
    assert json.loads((trained / "summary.json").read_text())["steps"] == 2
    with pytest.raises(ConfigError, match="no such run"):
        train.train(job)


@pytest.mark.slow
def test_scripted_player_adds_to_recorded_demonstrations_which_are_read_once(tmp_path, monkeypatch):
    small = [SMALL, "train.steps=0", "eval.episodes=1", "logging=[file]", "eval.baselines=[]"]
    small += ["warm_start.steps=2", "warm_start.episodes=3", "env.max_turns=4"]
    small += [f"warm_start.cache={tmp_path / 'cache'}"]
    run = human(lake(tmp_path), *WAY)
    opened: list[str] = []
    episode = replay.Run.episode

    def counted(run: replay.Run, name: str) -> replay.RecordedEpisode:
        opened.append(name)
        return episode(run, name)

    monkeypatch.setattr(replay.Run, "episode", counted)
    job = recorded_by(lake(tmp_path / "jobs", *small), run, player="random")
    trained = train.train(job).path
    assert opened == [summary.id for summary in replay.open(run).episodes()]
    games = [e for e in replay.open(trained).episodes() if e.split == "demo"]
    assert len(games) == 3
    again = selected(recorded_by(job, run, trained, player="random"))
    assert [one.by_player for one in again.episodes if one.run.path == trained] == [True] * 3
    assert not any(one.by_player for one in again.episodes if one.run.path != trained)
