import base64
import hashlib
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.replay.recorder import Recorder
from agentrl.replay.touch_positions import touch_of
from agentrl.runs.annotations import star, write_note
from agentrl.types import ExecutedAction, ScoredEpisode, Turn
from agentrl.viewer.export import episode_media, write, write_group
from tests.replay import packs
from tests.replay.episodes import episode, screen, turn

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\" ' {{ 7*7 }} </pre>"


def exported(folder: Path, *turns: Turn, **changes: object) -> str:
    scored = ScoredEpisode(
        episode=episode("e", turns=turns, **changes),
        components={"outcome": (1.0,) * len(turns)},
        rewards=(1.0,) * len(turns),
    )
    with Recorder(folder) as recorder:
        recorder.episode(scored, split="train", step=1)
        recorder.record_advantages(scored, [[-0.25] * len(one.reply_ids) for one in turns])
    write(replay.open(folder), "e", folder / "out" / "e.html")
    return (folder / "out" / "e.html").read_text()


def test_a_page_shows_screens_marks_replies_and_numbers(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        frame = recorder.frame(screen(1, 720, 1280))
    page = exported(tmp_path, turn(frames=(frame,), reply="I see <three> cards"), error=None)
    assert page.count("data:image/webp;base64,") == 1
    assert 'cx="25.0%" cy="50.0%"' in page
    assert "I see &lt;three&gt; cards" in page
    assert "+1<" in page
    assert "-0.25<" in page


def test_a_page_shows_the_star_and_the_note(tmp_path: Path) -> None:
    exported(tmp_path, turn())
    run = replay.open(tmp_path)
    star(run.path, run.find("e"), starred=True)
    write_note(run.path, run.find("e"), "<b>odd</b>", seen="")
    write(run, "e", tmp_path / "e.html")
    write_group(run, run.episodes()[0].group, tmp_path / "group.html")
    page = (tmp_path / "e.html").read_text()
    assert '<p class="note" dir="auto">&lt;b&gt;odd&lt;/b&gt;</p>' in page
    for shown in (page, (tmp_path / "group.html").read_text()):
        assert 'title="starred"' in shown


def test_a_page_rounds_the_numbers_of_actions(tmp_path: Path) -> None:
    page = unescape(exported(tmp_path, turn(action=[0.30000001192092896, 2.0])))
    assert "[0.3, 2.0]" in page
    assert "0.30000001" not in page


def test_a_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = exported(tmp_path, turn())
    assert "default-src 'none'" in page.replace("&#39;", "'")
    assert not re.search(r"<script|https?://|@import|url\(| style=", page)


def test_the_security_policy_admits_only_the_pages_own_style(tmp_path: Path) -> None:
    page = unescape(exported(tmp_path, turn()))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page


def test_a_page_shows_the_instructions_and_the_shown_text(tmp_path: Path) -> None:
    page = exported(
        tmp_path, turn(shown="<image>You are at <b>4</b>"),
        instructions="Go down.", final_shown="You are home.",
    )  # fmt: skip
    assert ">You are at &lt;b&gt;4&lt;/b&gt;</pre>" in page
    assert ">Go down.</pre>" in page
    assert ">You are home.</pre>" in page
    assert 'class="screen missing"' not in page


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile = turn(
        reply=HOSTILE, shown=HOSTILE, parse_error=HOSTILE, state_key=HOSTILE,
        info={HOSTILE: HOSTILE}, action=HOSTILE, timings={HOSTILE: 1.0},
        frames=("../../etc/passwd", HOSTILE),
    )  # fmt: skip
    page = exported(tmp_path, hostile, error=HOSTILE, device=HOSTILE, env_id=HOSTILE, group=HOSTILE)
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page.split("<body>")[0]
    assert page.count("this frame was not recorded") == 2
    assert "49" not in re.findall(r"gnp\.exe.{0,40}", page)[0]


def test_unprintable_characters_are_escaped(tmp_path: Path) -> None:
    page = exported(tmp_path, turn(reply="half \ud800 \x1b[31m \x00"), error="\ud800")
    assert "half \\ud800 \\x1b[31m \\x00" in page
    page.encode()


def test_a_very_long_reply_is_truncated_with_a_note(tmp_path: Path) -> None:
    page = exported(tmp_path, turn(reply="x" * 100_000))
    assert "80,000 more characters" in page
    assert len(page) < 60_000


def test_a_damaged_frame_leaves_a_notice(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        frame = recorder.frame(screen(1))
    packs.damage(tmp_path)
    assert "this frame was not recorded" in exported(tmp_path, turn(frames=(frame,)))


def test_a_missing_episode_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    with pytest.raises(ConfigError, match="no episode 'x'"):
        write(replay.open(tmp_path), "x", tmp_path / "x.html")


@pytest.mark.parametrize(
    ("action", "reply", "expected"),
    [
        ([0.2, 0.7], "", (0.2, 0.7, 0.2, 0.7)),
        ([0.1, 0.2, 0.3, 0.4], "", (0.1, 0.2, 0.3, 0.4)),
        ({"type": "tap", "x": 0.5, "y": 0.25}, "", (0.5, 0.25, 0.5, 0.25)),
        ({"type": "key", "name": "BACK"}, "tap(0.1, 0.1)", None),
        ("swipe(0.5, 0.8, 0.5, 0.2)", "", (0.5, 0.8, 0.5, 0.2)),
        (None, "so <action>tap(0.21, 0.70)</action>", (0.21, 0.70, 0.21, 0.70)),
        (2, "<action>select(2)</action>", None),
        ([5.0, 7.0], "", None),
        ([10**400, 0], "", None),
    ],
)
def test_where_an_action_touched(
    action: object, reply: str, expected: tuple[float, ...] | None
) -> None:
    mark = touch_of(turn(action=action, reply=reply))
    assert (mark and (mark.x, mark.y, mark.to_x, mark.to_y)) == expected


def test_the_screens_between_several_actions_are_exported(tmp_path: Path) -> None:
    chunk = tuple(
        ExecutedAction(action=[x, 0.5], reward=x, info={}, shown=f"{HOSTILE} {x}", frames=("f",))
        for x in (0.25, 0.75)
    )
    page = exported(tmp_path, turn(action=[[0.25, 0.5], [0.75, 0.5]], chunk=chunk))
    assert HOSTILE not in page
    assert "after action 1 of 2" in page
    assert "after action 2 of 2" not in page  # shown as the next turn's screen
    assert "screen after action 1 of turn 1" in page or "this frame was not recorded" in page
    for words in ("action 1", "[0.25, 0.5], environment&#39;s reward +0.25", "[0.75, 0.5]"):
        assert words in page
    recorded = replay.open(tmp_path).episode("e")
    first, second, end = episode_media.shots(recorded)
    assert (first.title, second.title) == ("turn 1 of 1", "turn 1 of 1, action 2 of 2")
    assert (first.reward, second.reward, end.reward) == (1.0, None, None)
    assert (second.frame, second.mark and second.mark.x) == ("f", 0.75)


def test_of_several_actions_the_first_is_the_turns_touch() -> None:
    chunk = tuple(
        ExecutedAction(action=action, reward=0.0, info={}, shown="")
        for action in ([0.25, 0.5], [0.75, 0.5])
    )
    mark = touch_of(turn(action=[[0.25, 0.5], [0.75, 0.5]], chunk=chunk, parse_error="action 3"))
    assert mark is not None
    assert (mark.x, mark.y) == (0.25, 0.5)
    moves = tuple(replace(one, action=n) for n, one in enumerate(chunk))
    assert touch_of(turn(action=[0, 1], chunk=moves, reply="tap(0.1, 0.1)")) is None


def test_an_invalid_reply_has_no_touch() -> None:
    assert touch_of(turn(parse_error="two actions")) is None
