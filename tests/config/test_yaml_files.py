"""Hostile YAML files end in one line that names the file, wherever files are read."""

import time

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.training.evaluation.suite_files import read_suite
from agentrl.training.pipeline import check_pipeline
from virtual_phone.errors import SettingError
from virtual_phone.faults import fault_plan

READERS = {
    "job": configuration.load,
    "rewards": configuration.load_rewards,
    "suite": read_suite,
    "pipeline": check_pipeline,
    "faults": fault_plan.load,
}
_LAYERS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))
HOSTILE = {
    "aliases": f"a0: &a0 [lol, lol]\n{_LAYERS}\nenv: {{kwargs: {{x: *a9}}}}\nseed: *a9\n",
    "endless": "env: &e {id: NumberGame-v0, kwargs: *e}\nall: &f {seed: *f}\n",
    "deep": "{env: " * 3000 + "1" + "}" * 3000,
    "tags": "env: !!python/object/apply:os.mkdir [harm]\n",
    "binary": "\x00\x01",
    "open": "env: {id: [",
    "text": "just a sentence",
    "keys": "? [1, 2]\n: 3\n",
}


@pytest.mark.parametrize("content", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_one_line_that_names_it(reader, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(HOSTILE[content])
    began = time.process_time()
    with pytest.raises((ConfigError, SettingError), match=r"mine\.yaml") as caught:
        READERS[reader](file)
    assert time.process_time() - began < 5
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("reader", READERS)
def test_a_file_in_another_encoding_or_a_folder_is_named(reader, tmp_path):
    for name in ("latin.yaml", "folder.yaml"):
        (tmp_path / "latin.yaml").write_bytes(b"name: K\xf6ln\n")
        (tmp_path / "folder.yaml").mkdir(exist_ok=True)
        with pytest.raises((ConfigError, SettingError), match=name):
            READERS[reader](tmp_path / name)
