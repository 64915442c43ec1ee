"""Preference pairs of recorded siblings, read as training reads them and as TRL does."""

import json

import pytest

from agentrl import cli, replay
from agentrl.config import History
from agentrl.data.offline_rows import OfflineRows, read_preference
from agentrl.data.open_table import open_table
from agentrl.errors import ConfigError
from agentrl.replay.human_preferences import choices, choose, open_choices
from agentrl.replay.preference_pairs import PairSettings, write
from agentrl.replay.recorder import Recorder
from agentrl.types import Message, Outcome, ScoredEpisode
from tests.replay.episodes import episode, screen, turn

WHOLE = History()


def member(recorder, number, replies, rewards, *, seen=None, guided=0, **changes):
    """Record an episode that shows one screen per turn, by default the same for all members."""
    screens = seen or [10 + n for n in range(len(replies))]
    turns = tuple(
        turn(
            frames=(recorder.frame(screen(shown)),),
            shown=f"<image>Round {n}.",
            reply=reply,
            state_key=str(shown),
            guide="expert" if n < guided else None,
            info={"metrics": {"success": float(sum(rewards) > 0)}},
        )
        for n, (reply, shown) in enumerate(zip(replies, screens, strict=True))
    )
    played = episode(f"train-00001-g000-m{number:02d}", turns=turns, member=number, **changes)
    scored = ScoredEpisode(episode=played, components={}, rewards=tuple(map(float, rewards)))
    recorder.episode(scored, split="train", step=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs") / "run"
    with Recorder(folder, config="c0ffee") as recorder:
        group = {"group": "train-00001-g000"}
        member(recorder, 0, ["up", "left"], [0, 1], **group)
        member(recorder, 1, ["up", "right"], [0, -1], **group)
        member(recorder, 2, ["down", "left", "left"], [0, 0, 0.5], seen=[10, 12, 11], **group)
        member(recorder, 3, ["up", "up"], [0, -2], outcome=Outcome.DEVICE_ERROR, **group)
    return replay.open(folder)


def rows_of(run, path, history=WHOLE, **settings):
    count = write(run, path, replay.Filter(), history, PairSettings(**settings))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == count
    return rows


def texts(messages):
    return [message["content"] for message in messages]


def test_the_best_episode_is_paired_with_the_worst_from_where_they_differ(run, tmp_path):
    (row,) = rows_of(run, tmp_path / "pairs.jsonl")
    assert (row["chosen_id"][-3:], row["rejected_id"][-3:], row["gap"]) == ("m00", "m01", 2.0)
    assert texts(row["prompt"]) == ["Tap the cards.", "<image>Round 0.", "up", "<image>Round 1."]
    assert texts(row["chosen"]) == ["left"]
    assert texts(row["rejected"]) == ["right"]
    assert len(row["images"]) == 2
    (read,) = OfflineRows(open_table(str(tmp_path / "pairs.jsonl")), "pairs", read_preference)
    frames = run.episode(row["chosen_id"]).episode.turns
    for shown, played in zip(read.images, frames, strict=True):
        assert (shown == run.frame(played.frames[0])).all()


def test_a_guides_replies_are_neither_chosen_nor_rejected(tmp_path):
    with Recorder(tmp_path / "run", config="c0ffee") as recorder:
        group = {"group": "train-00001-g000"}
        member(recorder, 0, ["up", "left"], [0, 1], guided=1, **group)
        member(recorder, 1, ["down", "right"], [0, -1], guided=1, **group)
    run = replay.open(tmp_path / "run")
    (row,) = rows_of(run, tmp_path / "states.jsonl", by="state")
    assert (texts(row["chosen"]), texts(row["rejected"])) == (["left"], ["right"])
    with pytest.raises(ConfigError, match="no group has valid episodes"):
        rows_of(run, tmp_path / "pairs.jsonl")


def test_later_screens_are_images_of_the_answers(run, tmp_path):
    choose(run, "train-00001-g000-m02", "train-00001-g000-m01")
    (row,) = rows_of(run, tmp_path / "pairs.jsonl", by="choice")
    assert texts(row["prompt"]) == ["Tap the cards.", "<image>Round 0."]
    assert texts(row["chosen"])[::2] == ["down", "left", "left"]
    assert texts(row["rejected"])[::2] == ["up", "right"]
    (read,) = OfflineRows(open_table(str(tmp_path / "pairs.jsonl")), "pairs", read_preference)
    counts = [len(images) for images in (read.images, read.chosen_images, read.rejected_images)]
    assert counts == [1, 2, 1]


def test_a_later_choice_replaces_an_earlier_one_and_skipped_pairs_are_not_asked_again(tmp_path):
    with Recorder(tmp_path / "run", config="c0ffee") as recorder:
        for number in range(3):
            member(recorder, number, ["a"], [number], group="train-00001-g000")
    run = replay.open(tmp_path / "run")
    a, b, c = (f"train-00001-g000-m0{number}" for number in range(3))
    pairs, done = open_choices(run)
    assert ({frozenset(one.id for one in pair) for pair in pairs}, done) == (
        {frozenset(pair) for pair in ((a, b), (a, c), (b, c))},
        0,
    )
    choose(run, a, b)
    choose(run, b, a)
    choose(run, b, c, skipped=True)
    assert choices(run) == [(b, a)]
    ((left,), done) = open_choices(run)
    assert ({one.id for one in left}, done) == ({a, c}, 2)
    with pytest.raises(ConfigError, match="not two episodes of the same group"):
        choose(run, a, a)
    with pytest.raises(ConfigError, match="has no episode"):
        choose(run, a, "../a")


def test_replies_at_the_same_state_are_compared_by_what_followed(run, tmp_path):
    rows = rows_of(run, tmp_path / "pairs.jsonl", by="state")
    found = {(texts(row["chosen"])[0], texts(row["rejected"])[0]): row["gap"] for row in rows}
    assert found == {("left", "right"): 2.0}  # at the start, the best and the worst went up
    (row,) = rows_of(run, tmp_path / "w.jsonl", History(turns=1), by="state", per_group=1)
    assert texts(row["prompt"]) == ["Tap the cards.", "<image>Round 1."]
    (row,) = rows_of(run, tmp_path / "s.jsonl", History(screens=1), by="state")
    assert texts(row["prompt"]) == ["Tap the cards.", "Round 0.", "up", "<image>Round 1."]
    assert len(row["images"]) == 1


def test_where_prompts_show_a_window_only_the_first_difference_is_compared(run, tmp_path):
    choose(run, "train-00001-g000-m02", "train-00001-g000-m01")
    (row,) = rows_of(run, tmp_path / "pairs.jsonl", History(turns=1), by="choice")
    assert (texts(row["chosen"]), texts(row["rejected"])) == (["down"], ["up"])


def test_trl_takes_the_rows(run, tmp_path):
    from datasets import load_dataset
    from trl.data_utils import is_conversational

    rows_of(run, tmp_path / "pairs.jsonl", by="state")
    (row,) = load_dataset("json", data_files=str(tmp_path / "pairs.jsonl"), split="train")
    assert is_conversational(row)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pairs.json"], r"must end in \.jsonl"),
        (["pairs.jsonl", "--by", "luck"], "must be one of episode, state, choice"),
        (["pairs.jsonl", "--min-gap", "9"], "no group has valid episodes"),
        (["pairs.jsonl", "--label", "odd"], "no episode has this label"),
    ],
)
def test_mistakes_are_explained_and_leave_no_file(run, tmp_path, capsys, arguments, said):
    (run.path / "config.yaml").write_text("env: {id: Game-v0}\n")
    path = tmp_path / arguments[0]
    assert cli.run(["pairs", str(run.path), str(path), *arguments[1:]]) == 2
    assert said.replace("\\", "") in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("history", [WHOLE, History(turns=1), History(screens=1)])
def test_messages_before_the_first_turn_are_in_every_prompt(tmp_path, history):
    earlier = (
        Message(role="user", text="<image>What?"),
        Message(role="assistant", text="A <image>."),
    )
    with Recorder(tmp_path / "run", config="c0ffee") as recorder:
        for number, last in enumerate(("left", "right")):
            frames = [recorder.frame(screen(n)) for n in range(3)]
            turns = (
                turn(frames=(frames[0], frames[1]), shown="<image>Go.", reply="up"),
                turn(frames=(frames[2],), shown="<image>On.", reply=last),
            )
            played = episode(f"train-00001-g000-m0{number}", turns=turns, preceding=earlier)
            rewards = (0.0, float(-number))
            scored = ScoredEpisode(episode=played, components={}, rewards=rewards)
            recorder.episode(scored, split="train", step=1)
    (row,) = rows_of(replay.open(tmp_path / "run"), tmp_path / "pairs.jsonl", history)
    shown = ["<image>Go." if history == WHOLE else "Go.", "up", "<image>On."]
    expected = shown[-1:] if history.turns else shown
    assert texts(row["prompt"]) == ["Tap the cards.", "<image>What?", "A <image >.", *expected]
    count = sum("<image>" in text for text in texts(row["prompt"]))
    assert len(row["images"]) == count
    assert texts(row["chosen"]) == ["left"]
    assert texts(row["rejected"]) == ["right"]
