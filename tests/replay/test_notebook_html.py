"""What `repr` and notebooks show, judged by the parser of Python's own library."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.training.evaluation.held_out_evaluation import Evaluation
from agentrl.types import Outcome, ScoredEpisode
from tests.replay.episodes import episode, turn
from tests.viewer import runs

HOSTILE = '</div><script>alert("x")</script><img src=x onerror="alert(1)">&amp;'


class Page(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.attributes: dict[str, str | None] = {}
        self.sources: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)
        self.sources += [str(value) for name, value in attrs if name == "src"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_episode_is_a_film_strip_and_what_a_model_wrote_is_only_text() -> None:
    image = np.zeros((60, 40, 3), np.uint8)
    turns = (
        replace(turn(), reply=HOSTILE, action=HOSTILE, images=(image,)),
        replace(turn(), reply=HOSTILE, action=None, parse_error=HOSTILE),
    )
    played = episode("e1", turns=turns, outcome=Outcome.ENV_ERROR, error=HOSTILE)
    for shown in (played, ScoredEpisode(episode=played, components={}, rewards=(1.0, 0.5))):
        page = Page(shown._repr_html_())
        assert {*page.tags} <= {"p", "div", "img", "br", "span", "pre"}
        assert page.text.count(HOSTILE) == 3  # action, error of the reply, error of the episode
        assert page.attributes["title"] == HOSTILE
        assert "onerror" not in page.attributes
        assert [source[:23] for source in page.sources] == ["data:image/jpeg;base64,"]
        assert len(repr(shown)) < 200
    assert "reward 1.5" in page.text


def test_a_board_of_characters_keeps_its_lines() -> None:
    board = "#####\n#@ $#\n<i> .#"
    shown = Page(episode("e1", turns=(replace(turn(), shown=board),))._repr_html_())
    assert "pre" in shown.tags
    assert board in shown.text
    assert "i" not in shown.tags


def test_a_long_episode_shows_its_ends() -> None:
    turns = tuple(replace(turn(), action=f"move-{number}") for number in range(100))
    text = Page(episode("e1", turns=turns)._repr_html_()).text
    assert "76 more" in text
    assert "move-0" in text
    assert "move-99" in text
    assert "move-50" not in text


def test_a_run_shows_its_result_curve_and_players(tmp_path: Path) -> None:
    folder = runs.run(tmp_path / "run")
    (folder / "curve.png").write_bytes(b"\x89PNG")
    (folder / "summary.json").write_text(
        '{"<b>expert": {"accuracy": 1}, "before": {"sampled": {"reward": 1, "accuracy": 0.5}},'
        ' "after": {"sampled": {"reward": 2, "accuracy": 0.98}}, "steps": 18}'
    )
    run = replay.open(folder)
    assert [(row["step"], row["train/turns"]) for row in run.metrics] == [(1, 3.0), (2, 3.0)]
    assert run.config == {"seed": 0, "env": {"id": "Game-v0"}}
    assert repr(run) == f"Run({str(folder)!r}, accuracy 0.5 -> 0.98, 18 steps)"
    page = Page(run._repr_html_())
    assert f"{len(run.episodes())} episodes" in page.text
    assert "<b>expert" in page.text
    assert page.sources[0].startswith("data:image/png;base64,")
    (folder / "summary.json").write_text("{")
    assert repr(run) == f"Run({str(folder)!r})"
    first = run.episodes()[0]
    assert repr(first).startswith(f"Summary({first.id}, ")
    assert len(repr(first)) < 120
    with pytest.raises(
        ConfigError, match=f"is a folder of runs, so open one of them, such as {folder}"
    ):
        replay.open(tmp_path)
    assert replay.Run(str(folder)).path == replay.open(run).path == folder
    with pytest.raises(ConfigError, match="nope: no such run"):
        replay.Run(tmp_path / "nope")
    shown = Page(run.episode(first.id)._repr_html_())
    assert shown.sources  # frames that the run recorded
    assert "turn 1, reward" in shown.text
    (folder / "config.yaml").unlink()
    (folder / "metrics.jsonl").unlink()
    assert (run.config, run.metrics) == ({}, [])


@pytest.mark.parametrize(
    ("values", "interval"),
    [([1.0, 1.0, 0.0, 1.0], "0.3006 to 0.9544"), ([1.0], "0.2065 to 1")],
)
def test_an_evaluation_is_a_table_with_intervals(values: list[float], interval: str) -> None:
    by_seed = {seed: {"success": value, "reward": 2.0} for seed, value in enumerate(values)}
    mean = sum(values) / len(values)
    found = Evaluation(
        metrics={"reward": 2.0, "success": mean, "<i>": 1.0},
        episodes=len(values),
        void=1,
        seconds=1.0,
        by_seed=by_seed,
    )
    assert repr(found).startswith(f"Evaluation(reward 2, success {mean:g}, {len(values)} episode")
    page = Page(found._repr_html_())
    assert interval in page.text
    assert "<i>" in page.text
    assert "i" not in page.tags
