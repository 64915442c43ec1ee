"""Extension points: what a name in the configuration selects."""

from pathlib import Path

import pytest

from agentrl.errors import ConfigError
from agentrl.registry import ExtensionPoint

POINT = ExtensionPoint(
    kind="fruit",
    setting="garden.fruit",
    builtin={"apple": "collections:OrderedDict", "red-currant": "collections:Counter"},
    base="builtins:dict",
)


def test_a_built_in_name_selects_its_target_however_it_is_spelled() -> None:
    from collections import Counter

    assert POINT.resolve("red-currant") is Counter
    assert POINT.resolve("Red_Currant") is Counter


def test_a_class_of_the_user_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_fruit.py").write_text("class Plum(dict):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    assert POINT.resolve("my_fruit.py:Plum").__name__ == "Plum"


def test_a_miss_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"garden\.fruit=aple: .*did you mean 'apple'"):
        POINT.resolve("aple")


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"deque: is not a subclass of builtins\.dict"):
        POINT.resolve("collections:deque")


def test_an_installed_package_adds_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "orchard-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[agentrl.fruit]\npear = orchard:Pear\n")
    (tmp_path / "orchard.py").write_text("class Pear(dict):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [(one.name, one.origin) for one in POINT.extensions()] == [
        ("apple", "agentrl"),
        ("pear", "orchard"),
        ("red-currant", "agentrl"),
    ]
    assert POINT.resolve("pear").__name__ == "Pear"
