"""JSON Lines files that are read while another process appends to them."""

import os
from pathlib import Path

from agentrl.runs.jsonl import JsonlTail, JsonlTails


def test_a_replaced_file_of_the_same_length_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "index.jsonl"
    file.write_text('{"id": 1}\n')
    tail = JsonlTail(file)
    assert list(tail.new()) == [{"id": 1}]
    assert not tail.is_replaced()
    assert not tail.is_replaced()
    inode = file.stat().st_ino
    file.write_text('{"id": 2}\n')
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000_000_000))
    assert file.stat().st_ino == inode
    assert tail.is_replaced()


def test_files_that_appear_later_are_read(tmp_path: Path) -> None:
    def write(name: str) -> None:
        (tmp_path / name).write_text(f'{{"file": "{name}"}}\n')

    tails = JsonlTails(tmp_path / "episodes")
    assert not list(tails.new("index-*.jsonl"))
    tmp_path = tmp_path / "episodes"
    tmp_path.mkdir()
    write("index-a.jsonl")
    write("scores-a.jsonl")
    assert list(tails.new("index-*.jsonl")) == [{"file": "index-a.jsonl"}]
    write("index-b.jsonl")  # perhaps in the same tick of the clock
    assert list(tails.new("index-*.jsonl")) == [{"file": "index-b.jsonl"}]
    for seconds in (100, 200):  # listed once it has been left alone for a while
        write(f"index-{seconds}.jsonl")
        os.utime(tmp_path, (seconds, seconds))
        assert list(tails.new("index-*.jsonl")) == [{"file": f"index-{seconds}.jsonl"}]
        assert not list(tails.new("index-*.jsonl"))
