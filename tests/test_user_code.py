"""Extension points: what a name in the configuration selects."""

import logging
import math
import sys
from pathlib import Path

import pytest

from agentrl import user_code
from agentrl.errors import ConfigError
from agentrl.extension_points import DRIVER, LOGGER, ExtensionPoint
from agentrl.user_code import load

POINT = ExtensionPoint(
    kind="fruit",
    setting="garden.fruit",
    builtin={"apple": "collections:OrderedDict", "red-currant": "collections:Counter"},
    base="builtins:dict",
)


@pytest.fixture
def orchard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package that adds names of its own and one that is taken."""
    folder = tmp_path / "orchard-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[agentrl.fruit]\npear = orchard_fruits:Pear\nApple = orchard_fruits:Pear\n"
        "fig = orchard_fruits:Pear [dried]\nstone = orchard_fruits:Stone\n"
    )
    (tmp_path / "orchard_fruits.py").write_text(
        "class Pear(dict):\n    pass\n\n\nclass Stone:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "orchard_fruits", raising=False)
    return tmp_path


def test_a_built_in_name_selects_its_target_however_it_is_spelled() -> None:
    from collections import Counter

    assert POINT.resolve("red-currant") is Counter
    assert POINT.resolve("Red_Currant") is Counter
    assert POINT.resolve("collections:Counter") is Counter


def test_a_package_holds_one_class_per_module() -> None:
    assert DRIVER.names() == ["adbutils", "ppadb"]
    assert [one.target for one in DRIVER.extensions()] == [
        "agentrl.devices.adb.drivers.adbutils",
        "agentrl.devices.adb.drivers.ppadb",
    ]
    found = DRIVER.resolve("adbutils")
    assert (found.__module__, found.__name__) == (DRIVER.target("adbutils"), "AdbutilsSocket")


def test_a_module_with_two_classes_is_an_error_that_names_them() -> None:
    base = "agentrl.devices.capture.capture_method:Capture"
    two = ExtensionPoint(
        kind="capture", setting="x.y", builtin="agentrl.devices.capture", base=base
    )
    with pytest.raises(ConfigError, match="one subclass of Capture, but contains RawCapture, "):
        two.resolve("screencap")


def test_names_are_known_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "agentrl.training.monitoring.loggers.swanlab"
    monkeypatch.delitem(sys.modules, module, raising=False)
    LOGGER.check_name("swanlab")
    assert "swanlab" in LOGGER.names()
    assert module not in sys.modules
    with pytest.raises(ConfigError, match=r"logging=swamlab: .*did you mean 'swanlab'"):
        LOGGER.check_name("swamlab")


def test_a_class_of_the_user_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_fruit.py").write_text("class Plum(dict):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    assert POINT.resolve("my_fruit.py:Plum").__name__ == "Plum"
    assert POINT.resolve(f"{tmp_path}/my_fruit.py:Plum") is POINT.resolve("my_fruit.py:Plum")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("aple", r"garden\.fruit=aple: there is no such fruit \(did you mean 'apple'\?\)"),
        ("kiwi", r"Known: apple, red-currant; give your own as module:Class or path/file\.py:"),
        ("collections:Countr", r"garden\.fruit=.*: collections has no 'Countr'.*'Counter'"),
        ("no_such_module:Plum", r"garden\.fruit=.*: no_such_module: cannot be imported"),
        ("no_such_file.py:Plum", r"garden\.fruit=.*: no_such_file\.py: no such file"),
        ("collections:deque", r"deque: is not a subclass of builtins\.dict"),
        ("os.path:join", r"join: is not a subclass of builtins\.dict"),
    ],
)
def test_a_miss_says_why_and_names_the_nearest(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        POINT.resolve(name)


def test_a_file_that_fails_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rotten_fruit.py").write_text("\n\nPEEL = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.*\(rotten_fruit\.py:3\)"):
        POINT.resolve("rotten_fruit.py:Plum")


def test_an_import_that_does_not_end_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The import ends once the report has been written."""
    reported = tmp_path / "reported"
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: reported.touch())
    monkeypatch.setattr(user_code, "IMPORT_WARNING_S", 0.1)
    monkeypatch.setattr(user_code.log, "handlers", [handler])
    line = f"while not os.path.exists({str(reported)!r}): pass"
    (tmp_path / "sleepy.py").write_text(f"import os\n\n{line}\nclass Fruit(dict): pass\n")
    assert load(f"{tmp_path}/sleepy.py:Fruit").__name__ == "Fruit"
    place = f"{tmp_path / 'sleepy.py'}:3: {line}"
    assert (
        f"the import has not finished after 0 s, and is at {place}; move slow work" in caplog.text
    )


def test_an_installed_package_adds_names(orchard: Path) -> None:
    assert [(one.name, one.origin) for one in POINT.extensions()] == [
        ("apple", "agentrl"),
        ("fig", "orchard"),
        ("pear", "orchard"),
        ("red-currant", "agentrl"),
        ("stone", "orchard"),
    ]
    assert POINT.resolve("pear").__name__ == "Pear"
    assert POINT.resolve("fig") is POINT.resolve("PEAR")
    assert POINT.resolve("apple").__name__ == "OrderedDict", "a built-in cannot be replaced"
    with pytest.raises(ConfigError, match="stone: is not a subclass"):
        POINT.resolve("stone")
    with pytest.raises(ConfigError, match="did you mean 'pear'"):
        POINT.resolve("peer")


def test_a_file_may_be_named_like_another_module(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "math.py").write_text(f"class Fruit(dict):\n    name = '{folder}'\n")
    one, other = (load(f"{tmp_path}/{folder}/math.py:Fruit") for folder in ("one", "other"))
    assert (one.name, other.name) == ("one", "other")
    assert load(f"{tmp_path}/one/math.py:Fruit") is one
    assert sys.modules["math"] is math


def test_a_file_named_like_an_installed_module_does_not_shadow_it(tmp_path: Path) -> None:
    (tmp_path / "xdrlib.py").write_text("class Fruit(dict):\n    pass\n")
    sys.modules.pop("xdrlib", None)
    assert POINT.resolve(f"{tmp_path}/xdrlib.py:Fruit").__name__ == "Fruit"
    assert "xdrlib" not in sys.modules


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home_fruit.py").write_text("class Quince(dict):\n    pass\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert POINT.resolve("~/home_fruit.py:Quince").__name__ == "Quince"
    with pytest.raises(ConfigError, match=r"~nosuchuser/x\.py: "):
        POINT.resolve("~nosuchuser/x.py:Quince")
