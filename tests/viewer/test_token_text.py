"""The text of tokens on an episode's page."""

import json
import os
import shutil
from pathlib import Path

import pytest

from agentrl.viewer.episodes.token_text import TokenVocabulary, turn_tokens
from tests.replay.episodes import episode, turn


@pytest.mark.parametrize("id", [-1, 10**30])
def test_tokens_without_a_tokenizer_appear_as_ids(tmp_path, id):
    from tokenizers import Tokenizer, models

    (tmp_path / "start").mkdir()
    Tokenizer(models.WordLevel({"go": 0}, unk_token="go")).save(
        str(tmp_path / "start" / "tokenizer.json")
    )
    words = TokenVocabulary(tmp_path)
    assert words.look() is None
    assert (words.word(0), words.word(id)) == ("go", f"[{id}]")


def one_turn(folder: Path) -> tuple[str, str | None]:
    """The first sampled token of a run's first turn, and why it appears as an id."""
    words = TokenVocabulary(folder)
    answer = turn_tokens(episode("e", turns=(turn(reply_ids=(0,)),)), 1, words)
    return answer["reply"][0]["text"], answer["note"]


def a_run(folder: Path, word: str, model: str = "start") -> Path:
    """A run's folder with a one-word tokenizer."""
    from tokenizers import Tokenizer, models

    (folder / model).mkdir(parents=True)
    made = Tokenizer(models.WordLevel({word: 0}, unk_token=word))
    made.save(str(folder / model / "tokenizer.json"))
    (folder / "config.yaml").write_text("seed: 0\n")
    return folder


def test_an_evaluation_uses_the_tokenizer_of_the_evaluated_run(tmp_path, monkeypatch):
    trained = a_run(tmp_path / "runs" / "trained", "own", "model")
    played = tmp_path / "runs" / "eval-model-trained"
    played.mkdir()
    (played / "config.yaml").write_text(f"model: {{path: {trained / 'model'}}}\n")
    assert one_turn(played) == ("own", None)
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "eval-model-trained"
    assert one_turn(moved) == ("own", None)
    (moved / "config.yaml").write_text("model: {path: some/hub}\n")
    (moved / "summary.json").write_text('{"target": "moved/trained"}')
    assert one_turn(moved) == ("own", None)
    moved.rename(tmp_path / "alone")
    monkeypatch.chdir(tmp_path)
    assert one_turn(tmp_path / "alone") == ("own", None)


@pytest.mark.parametrize(
    ("config", "summary"),
    [
        ("model: {path: PLACE/secret}", {}),
        ("model: {path: PLACE/no_run/model}", {}),
        ("model: {path: 5}", {"target": 5}),
        ("model: {path: PLACE/pipe/model}", {"target": "PLACE/no_run"}),
        ("model: [", {"target": "a" * 5000}),
        ("- 1", {"target": "PLACE/\0"}),
        ("model: {path: /}", {"target": ".."}),
        ("model: {path: /start}", {"target": ""}),
    ],
)  # fmt: skip
def test_a_foreign_run_opens_no_file_except_a_runs_tokenizer(tmp_path, config, summary):
    (a_run(tmp_path / "no_run", "leaked", "model") / "config.yaml").unlink()
    secret = a_run(tmp_path, "leaked", "secret")
    (secret / "config.yaml").rename(secret / "other.yaml")
    pipe = a_run(tmp_path / "pipe", "leaked", "other")
    (pipe / "model").mkdir()
    os.mkfifo(pipe / "model" / "tokenizer.json")
    strange = tmp_path / "far" / "strange"
    strange.mkdir(parents=True)
    (strange / "config.yaml").write_text(config.replace("PLACE", str(tmp_path)))
    answer = json.dumps(summary).replace("PLACE", str(tmp_path))
    (strange / "summary.json").write_text(answer)
    word, why = one_turn(strange)
    assert word == "[0]"
    assert "no tokenizer.json in start/ or model/" in why


def test_a_broken_or_late_tokenizer_is_handled(tmp_path):
    (tmp_path / "start").mkdir()
    words = TokenVocabulary(tmp_path)
    assert "there is no tokenizer.json" in words.look()
    (tmp_path / "start" / "tokenizer.json").write_text("{")
    assert "start/tokenizer.json cannot be read" in words.look()
    assert words.word(0) == "[0]"
    shutil.rmtree(tmp_path / "start")
    a_run(tmp_path, "late")
    assert words.look() is None
    assert words.word(0) == "late"
