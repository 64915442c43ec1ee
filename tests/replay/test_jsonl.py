"""JSON Lines files that are read while another process appends to them."""

import os
from pathlib import Path

from agentrl.replay.jsonl import JsonlTail


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
