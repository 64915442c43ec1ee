"""Copies of files on a node; `test_two_nodes.py` has them travel."""

import json
import os
from pathlib import Path

import pytest

from agentrl.cluster import node_files
from agentrl.cluster.node_files import FilesOfNode


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(node_files.tempfile, "tempdir", str(tmp_path))
    found = FilesOfNode()
    yield found
    found.close()


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "more").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "more" / "weights").write_bytes(bytes(range(256)) * 20)
    (folder / "empty").touch()
    return folder


def copied(source, node, *, keep):
    """The path of a copy, and whether it was there already."""
    wanted = node.list(source)
    place, complete = node.prepare(source.name, wanted, keep)
    for name in () if complete else wanted:
        size, offset = None, 0
        while size is None or offset < size:
            chunk, size = node.read(source / name, offset)
            node.write(name, chunk)
            offset += len(chunk)
    if not complete:
        node.finish()
    assert node.list(place) == wanted
    return place, complete


def test_a_model_is_copied_once_until_its_content_changes(node, model, monkeypatch):
    monkeypatch.setattr(node_files, "_CHUNK", 1000)
    place, complete = copied(model, node, keep=True)
    assert not complete
    assert (place / "more" / "weights").read_bytes() == (model / "more" / "weights").read_bytes()
    assert copied(model, node, keep=True) == (place, True)
    (model / "config.json").write_text("[]")
    other, complete = copied(model, node, keep=True)
    assert not complete
    assert other != place
    assert (place / "config.json").read_text() == "{}"


def test_models_that_differ_only_in_the_middle_of_a_file_have_copies_of_their_own(node, model):
    file = model / "model.safetensors"
    file.write_bytes(bytes(5 << 20))
    before = os.stat(file)
    place, _ = copied(model, node, keep=True)
    with file.open("r+b") as opened:
        opened.seek(2_500_000)
        opened.write(b"1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    other, complete = copied(model, node, keep=True)
    assert (other != place, complete) == (True, False)
    assert (other / file.name).read_bytes() == file.read_bytes()


def test_a_large_file_is_read_once_until_it_changes_also_by_later_jobs(
    node, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(node_files, "_SETTLED_S", 0.0)
    file = model / "model.safetensors"
    file.write_bytes(bytes(2 << 20))
    listed = node.list(model)
    (store,) = tmp_path.glob("agentrl-models-*/digests.json")
    known = json.loads(store.read_text())
    assert list(known) == [str(file)]
    known[str(file)][-1] = "remembered"
    store.write_text(json.dumps(known))
    assert FilesOfNode().list(model) == listed | {file.name: f"{2 << 20} remembered"}
    os.utime(file)
    assert FilesOfNode().list(model) == listed
    store.write_text("{")
    assert FilesOfNode().list(model) == listed


def test_new_weights_replace_older_ones_and_leave_nothing(node, tmp_path):
    places = []
    for version in range(2):
        file = tmp_path / f"version-{version}.safetensors"
        file.write_bytes(bytes([version]) * 3000)
        places.append(copied(file, node, keep=False)[0])
    assert not places[0].exists()
    assert places[1].read_bytes() == bytes([1]) * 3000
    node.close()
    assert not places[1].parent.exists()


def test_what_was_left_half_written_is_written_again(node, model):
    wanted = node.list(model)
    node.prepare("model", wanted, True)
    node.write("config.json", b"half")
    place, complete = copied(model, node, keep=True)
    assert not complete
    assert (place / "config.json").read_text() == "{}"


def test_a_name_cannot_leave_the_copy(node, model):
    node.prepare("model", node.list(model), True)
    with pytest.raises(ValueError, match="is outside the folder"):
        node.write("../else", b"")


def test_what_does_not_exist_has_no_listing(node):
    assert node.list(Path("/nothing/here")) is None


def test_what_ranks_wrote_on_a_node_joins_what_is_there(node, model, tmp_path):
    """As two ranks' shards of a checkpoint do."""
    there = tmp_path / "checkpoint"
    there.mkdir()
    (there / "shard-0").write_text("0")
    (model / "config.json").rename(model / "shard-1")
    node.prepare_into(there)
    for name in node.list(model):
        node.write(name, node.read(model / name, 0)[0])
    node.finish_into()
    assert sorted(node.list(there)) == ["empty", "more/weights", "shard-0", "shard-1"]
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_what_was_written_for_engines_elsewhere_is_removed_too(node, tmp_path):
    """As on the node of rank 0, where the process that names the files may not run."""
    folder = tmp_path / "weights"
    folder.mkdir()
    versions = [folder / f"version-{number}" for number in range(2)]
    for version in versions:
        version.write_text("")
        (folder / "base-0").write_text("")
        node.own(version)
    assert sorted(folder.iterdir()) == [folder / "base-0", versions[1]]
    node.close()
    assert not folder.exists()
