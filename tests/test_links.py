import importlib
import sys
from pathlib import Path

import pytest

from agentrl.errors import ConfigError
from agentrl.folder_links import check_links, refuse_bare_name


@pytest.mark.parametrize("name", ["envs", "envs.android", "rewards"])
def test_bare_names_are_refused(name: str) -> None:
    with pytest.raises(ImportError, match=f"agentrl.{name}"):
        refuse_bare_name(name)


def test_full_names_pass() -> None:
    refuse_bare_name("agentrl.envs")


@pytest.mark.parametrize("name", ["envs", "rewards"])
def test_the_folders_at_the_top_cannot_be_imported_by_their_own_names(name: str) -> None:
    assert name not in sys.modules
    with pytest.raises(ImportError, match=f"import 'agentrl.{name}' instead"):
        importlib.import_module(name)


def test_this_checkout_is_whole() -> None:
    check_links()


def test_links_that_became_text_files_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "envs").write_text("../envs")
    (tmp_path / "rewards").mkdir()
    with pytest.raises(ConfigError, match=r"envs, configs should be links.*core\.symlinks"):
        check_links(tmp_path)
