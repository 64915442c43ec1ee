import importlib
import sys
from pathlib import Path

import pytest

from agentrl.errors import ConfigError
from agentrl.package_links import check_links, refuse_bare_name


@pytest.mark.parametrize("name", ["envs", "envs.android", "rewards"])
def test_an_import_by_bare_name_is_refused(name: str) -> None:
    with pytest.raises(ImportError, match=f"agentrl.{name}"):
        refuse_bare_name(name)


def test_an_import_by_full_name_passes() -> None:
    refuse_bare_name("agentrl.envs")


@pytest.mark.parametrize("name", ["envs", "rewards"])
def test_the_top_level_folders_cannot_be_imported_directly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test's folder may hold a file of that name, such as a new environment's rewards.py.
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=f"import 'agentrl.{name}' instead"):
        importlib.import_module(name)


def test_the_links_of_this_checkout_are_intact() -> None:
    check_links()


def test_links_that_became_text_files_are_config_errors(tmp_path: Path) -> None:
    (tmp_path / "envs").write_text("../envs")
    (tmp_path / "rewards").mkdir()
    with pytest.raises(ConfigError, match=r"envs, configs must be symbolic links.*core\.symlinks"):
        check_links(tmp_path)
