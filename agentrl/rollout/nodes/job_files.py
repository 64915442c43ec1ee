"""The user's files that a job needs on every node: code, data and templates."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl import user_code
from agentrl.cluster.node_files import MAX_BYTES, MAX_FILES
from agentrl.cluster.placement import Node
from agentrl.cluster.reservation import Reservation
from agentrl.config import Config
from agentrl.data.open_table import find_local, split_in
from agentrl.data.prompt_templates import find_template
from agentrl.errors import INSTALLED, ConfigError

_PACKAGE = Path(configuration.__file__).resolve().parents[1]


def user_files(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each code file named in a setting, by path.

    Args:
        tree: the configuration of a job that has been checked, so that its modules are imported.
    """
    files = sorted({*_named_code(tree).values()})
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _named_code(tree: Mapping[str, Any]) -> dict[str, Path]:
    """Return the file of each setting of the form `module:name` or `path/file.py:name`."""
    found = {text: user_code.file_of(text) for text in _texts(tree)}
    return {text: file for text, file in found.items() if file is not None}


def local_folders(tree: Mapping[str, Any], arguments: Iterable[str]) -> dict[Path, list[str]]:
    """Return the user's files that a job needs wherever it runs, except for its model.

    These are the code that settings name, unless it is installed; modules imported from the current
    folder or the configuration's; the prompt template; and any file or folder that a keyword
    argument names. For a code or data file, these are all files of its folder, as it may import or
    refer to others.

    Args:
        tree: the configuration of a job that has been checked, so that its modules are imported.
        arguments: strings that may name files; see `free_texts`.

    Returns:
        The names of the files in and below each folder; the list is cut off beyond `MAX_FILES` or
        `MAX_BYTES`. Hidden files, virtual environments, runs and models are left out. No folder is
        inside another.
    """
    skipped = {Path(tree["run"]["dir"]).absolute(), Path(tree["model"]["path"]).absolute()}
    folders: dict[Path, list[str]] = {}
    for path in sorted({*_code(tree), *_named_data(arguments)}):
        folder = path if path.is_dir() else path.parent
        names = folders.setdefault(folder, []) or _names_below(folder, skipped)
        # A hidden file, or one beyond the limits, is not in the list but was named explicitly.
        own = [] if path.is_dir() or path.name in names else [path.name]
        folders[folder] = [*names, *own]
    if (prompt := tree["env"]["prompt"]) is not None:
        template = find_template(prompt).absolute()
        if not template.resolve().is_relative_to(_PACKAGE):
            names = folders.setdefault(template.parent, [])
            names += [] if template.name in names else [template.name]
    return _outermost(folders)


def _outermost(folders: Mapping[Path, Sequence[str]]) -> dict[Path, list[str]]:
    """Merge nested folders into the outermost, and list their files there."""
    found: dict[Path, list[str]] = {}
    # The shortest paths come first, so that an outer folder is known before its inner ones.
    for folder in sorted(folders, key=lambda path: len(path.parts)):
        outer = next((one for one in found if folder.is_relative_to(one)), folder)
        names = (str(folder.relative_to(outer) / name) for name in folders[folder])
        found[outer] = list(dict.fromkeys([*found.get(outer, []), *names]))
    return found


def _code(tree: Mapping[str, Any]) -> Iterator[Path]:
    """Yield files that settings name, and imported modules or their outermost packages."""
    named = _named_code(tree)
    modules = {text.partition(":")[0].partition(".")[0] for text in named}
    roots = tuple(f"{Path(root).absolute()}/" for root in ("", *tree["run"]["search_path"]))
    imported = user_code.module_files()
    for name in {name.partition(".")[0] for name in imported} - {"__main__", "agentrl"}:
        file = imported.get(name, "")
        if file.startswith(roots) or (file and name in modules):
            yield from _not_installed(file)
    for found in named.values():
        yield from _not_installed(str(found))


def _not_installed(*paths: str) -> list[Path]:
    """Return the paths that do not belong to Python or its packages."""
    return [Path(path).resolve() for path in paths if not path.startswith(INSTALLED)]


def _named_data(texts: Iterable[str]) -> Iterator[Path]:
    """Yield files and folders that keyword arguments name.

    A word without a dot or a slash, such as `train`, is not a path even if a folder has that name.
    """
    for text in texts:
        if ("/" in text or "." in text) and len(text) < 4096:
            try:
                path = find_local(split_in(text)[0])
            except ConfigError:
                continue
            if path is not None:
                yield Path(os.path.normpath(path))


def free_texts(value: Any) -> Iterator[str]:
    """Yield all strings in the free-form mappings of a configuration."""
    if dataclasses.is_dataclass(value):
        value = [getattr(value, one.name) for one in dataclasses.fields(value)]
    if isinstance(value, dict):
        yield from _texts(value)
    elif isinstance(value, list):
        for item in value:
            yield from free_texts(item)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _names_below(folder: Path, skipped: set[Path]) -> list[str]:
    """Return the names of the files in and below a folder, until there are too many."""
    names: list[str] = []
    size, seen = 0, set[str]()
    for parent, folders, files in os.walk(folder, followlinks=True):
        here = Path(parent)
        folders[:] = sorted(one for one in folders if _travels(here / one, skipped, seen))
        for file in sorted(here / one for one in files if not one.startswith(".")):
            if file.is_file():
                names.append(str(file.relative_to(folder)))
                size += file.stat().st_size
            if size > MAX_BYTES or len(names) > MAX_FILES:
                return names
    return names


def _travels(folder: Path, skipped: set[Path], seen: set[str]) -> bool:
    """Return whether to copy a folder along with the files next to it; False if already seen."""
    is_run = (folder / "config.yaml").is_file() and (folder / "episodes").is_dir()
    is_environment = (folder / "pyvenv.cfg").is_file()
    if folder.name.startswith((".", "__pycache__")) or is_run or is_environment:
        return False
    # A link that leads back up would otherwise be followed forever.
    real = os.path.realpath(folder)
    is_new = folder not in skipped and real not in seen
    seen.add(real)
    return is_new


@dataclass(slots=True, frozen=True)
class JobOnNode:
    """A job's configuration and the files that it names, for the actors of a node."""

    tree: dict[str, Any] = field(repr=False)
    digest: str
    """Digest of the configuration before its paths were changed for the node."""
    folder: Path
    """Folder in which the job was started."""
    root: Path | None = None
    """Folder with copies of the user's files, each below its original path; None on a node that has
    the originals."""

    def open(self) -> Config:
        """Change to the folder in which the job was started, and return the configuration.

        Raises:
            ConfigError: the configuration names something that cannot be imported here.
        """
        tree, folder = self.tree, self.folder
        if self.root is not None:
            user_code.look_below(self.root)
            tree = _with_texts(tree, self._below)
            folder = Path(self._below(str(folder)))
        if folder.is_dir():
            os.chdir(folder)
        return configuration.from_dict(tree)

    def _below(self, text: str) -> str:
        """Return the copy's path for an absolute path with a copy below the root, else the text."""
        copy = f"{self.root}{text}"
        return copy if text.startswith("/") and os.path.exists(split_in(copy)[0]) else text


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with `change` applied to every string except keys of mappings."""
    if isinstance(value, dict):
        return {name: _with_texts(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _with_home(text: str) -> str:
    return os.path.expanduser(text) if text.startswith("~/") else text


class JobFiles:
    """The user's files on the nodes of a job; see `local_folders`.

    Args:
        config: the configuration of a job that has been checked.
        reservation: where the job's actors run.

    Raises:
        ClusterError: files cannot be copied to a node that lacks them.
    """

    def __init__(self, config: Config, reservation: Reservation) -> None:
        tree = _with_texts(config.to_dict(), _with_home)
        searched = _not_installed(*config.run.search_path, *sys.path)
        tree["run"]["search_path"] = list(dict.fromkeys(map(str, searched)))
        self._job = JobOnNode(tree, config.digest(), Path.cwd())
        self._roots: Mapping[str, Path] = {}
        if reservation.has_other_nodes:
            self._roots = reservation.mirror(local_folders(config.to_dict(), free_texts(config)))

    def on(self, node: Node) -> JobOnNode:
        """Return the job for an actor on a node."""
        return dataclasses.replace(self._job, root=self._roots.get(node.id))
