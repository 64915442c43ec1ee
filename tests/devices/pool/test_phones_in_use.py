"""Phones count as in use while the process that announced them lives and has not closed them."""

import tempfile
from pathlib import Path

import pytest

from agentrl.devices.pool.phones_in_use import PhonesInUse, phones_in_use


def test_phones_are_in_use_until_their_pool_is_closed_or_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert phones_in_use() == set()
    first, second = PhonesInUse(["a", "b"]), PhonesInUse(["b"])
    second.add("c")
    assert phones_in_use() == {"a", "b", "c"}
    first.close()
    first.close()
    assert phones_in_use() == {"b", "c"}
    (folder,) = tmp_path.iterdir()
    killed = folder / "killed.serials"
    killed.write_text("d\n")  # no process holds its lock
    assert phones_in_use() == {"b", "c"}
    assert not killed.exists()
    second.close()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_used_stops_no_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    announced = PhonesInUse(["a"])
    assert phones_in_use() == set()
    announced.close()
