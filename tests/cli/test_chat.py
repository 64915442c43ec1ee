"""`agentrl chat` with piped messages, and as a person uses it: in a pseudo-terminal."""

import io
import json
import os
import re
import sys
import time

import pytest

from agentrl.cli import run
from agentrl.data.offline_rows import OfflineRows, read_chat
from agentrl.data.tables import read_file
from agentrl.text.formatting import printable
from tests.data.rows import png
from tests.policies.completions_server import ok, refusal, reply, serving
from tests.pseudo_terminal import PseudoTerminal

HF = ["rollout.engine=hf"]


def chat(monkeypatch, lines, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return run(["chat", *arguments])


def test_messages_from_a_pipe_are_answered_and_saved_as_a_row_for_sft(
    monkeypatch, capsys, tiny_vlm, tmp_path
):
    (tmp_path / "a red box.png").write_bytes(png())
    saved = tmp_path / "chats.jsonl"
    lines = [
        f"/image {tmp_path}/a\\ red\\ box.png", "What is\\", "this?", "/imagine", "Which color?",
        f"/save {saved}", "/reset", "Hello", f"/save {saved}", "/quit", "never sent",
    ]  # fmt: skip
    options = ["--system", "Be brief.", *HF, "rollout.max_new_tokens=6"]
    assert chat(monkeypatch, lines, str(tiny_vlm), *options) == 0
    output, notes = capsys.readouterr()
    assert "/imagine: no such command (did you mean '/image'?)" in notes
    assert "image 1: a red box.png, 8x6" in notes
    first, second = OfflineRows(read_file(saved), "chats", read_chat)
    said = [(message.role, message.text) for message in first.messages]
    assert said[:2] == [("system", "Be brief."), ("user", "<image>What is\nthis?")]
    assert [role for role, _ in said[2:]] == ["assistant", "user", "assistant"]
    assert first.images[0].shape == (6, 8, 3)
    assert [message.role for message in second.messages] == ["system", "user", "assistant"]
    replies = [text for role, text in said if role == "assistant"]
    assert all(printable(reply.replace("\t", "    ")) in output for reply in replies)


def test_a_reply_cannot_control_the_terminal_and_a_failure_forgets_only_its_message(
    monkeypatch, capsys
):
    with serving() as server:
        evil = ok(reply("\x1b]0;gone\x07\x1b[2J\tred \u202e"))
        answers = iter([evil, refusal(400, "not \x1b[31mallowed"), ok(reply("ok"))])
        hello = ok(reply("hi"))
        server.usual = lambda body: hello if body["max_tokens"] == 1 else next(answers)
        assert chat(monkeypatch, ["one", "two", "three"], server.url) == 0
    output, notes = capsys.readouterr()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", output + notes)
    assert output.splitlines() == [r"\x1b]0;gone\x07\x1b[2J    red \u202e", "ok"]
    assert "allowed" in notes
    asked = [message["content"] for message in server.asked[-1]["messages"]]
    assert [asked[0], asked[-1], len(asked)] == ["one", "three", 3]


def test_mistakes_in_commands_are_explained_and_the_chat_goes_on(monkeypatch, capsys, tmp_path):
    (tmp_path / "no.png").write_text("text")
    (tmp_path / "image.png").write_bytes(png())
    lines = [
        "/save", f"/save {tmp_path}/x.jsonl", "/image", "/image /no/such.png",
        f"/image '{tmp_path}/no.png'", f"/image {tmp_path}/image.png", "<image> <image>?",
        "What is <image>?", f"/save {tmp_path}/x.txt", f"/save {tmp_path}/none/x.jsonl",
    ]  # fmt: skip
    with serving() as server:
        assert chat(monkeypatch, lines, server.url) == 0
    notes = capsys.readouterr().err
    for says in [
        "/save needs the name", "there is no reply to save yet", "/image needs the path",
        "no such file", "not recognized as PNG", "2 <image> for 1 image", "must end in .jsonl",
        "cannot be written",
    ]:  # fmt: skip
        assert says in notes
    text, image, rest = server.asked[-1]["messages"][0]["content"]
    assert (text["text"], rest["text"]) == ("What is ", "?")
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_person_chats_in_a_terminal_edits_a_line_and_stops_a_reply(tiny_vlm, tmp_path):
    import datasets

    saved = tmp_path / "chat.jsonl"
    sizes = ["rollout.max_new_tokens=1500", "rollout.max_context=8000"]
    command = [sys.executable, "-m", "agentrl", "chat", str(tiny_vlm), *HF, *sizes]
    terminal = PseudoTerminal(*command, env={**os.environ, "TERM": "xterm"})
    try:
        terminal.wait_for(r"/help.*\n(.*\n)*> ", 120)
        terminal.type("Helo\x1b[Dl\x1b[C there\r")  # the left and right arrow keys
        terminal.wait_for(r"there\r\n(.|\n)*\w{3}")  # the reply has begun
        grown = len(terminal.shown)
        end = time.monotonic() + 30
        while len(terminal.shown) < grown + 50:  # and grows
            assert time.monotonic() < end
            terminal.wait_for(rf"(?s).{{{grown + 50}}}")
        terminal.type("\x03")
        terminal.wait_for("stopped; your message was dropped(.|\n)*> ")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D or /quit ends the chat(.|\n)*> ")
        terminal.type("\x1b[A\r")  # the previous line
        terminal.wait_for("Hello there\r\n")
        terminal.wait_for(r"\n> $", 150)
        terminal.type(f"/save {saved}\r")
        terminal.wait_for("saved to(.|\n)*> ")
        terminal.type("\x04")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.close()
    (row,) = datasets.Dataset.from_json(str(saved), cache_dir=str(tmp_path / "cache"))
    assert [message["role"] for message in row["messages"]] == ["user", "assistant"]
    assert row["messages"][0]["content"] == "Hello there"
    assert json.loads(saved.read_text())["images"] == []
