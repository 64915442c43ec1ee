"""The start of an environment of one's own: a folder that trains at once."""

import importlib.util
import keyword
import re
import sys
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentrl.errors import ConfigError
from agentrl.files import write_durably

_FILES = {
    "game.py.jinja": "{name}.py",
    "rewards.py.jinja": "{name}_rewards.py",
    "config.yaml.jinja": "config.yaml",
    "test.py.jinja": "test_{name}.py",
    "readme.md.jinja": "README.md",
}


def write(where: Path, name: str) -> Path:
    """Write a small game, its words, players, reward, settings and test.

    Args:
        where: the folder that gets the new one.
        name: of the new folder and its module.

    Returns:
        The new folder.

    Raises:
        ConfigError: a name that no module can have, or that is taken.
    """
    _check(name)
    folder = where / name
    if folder.exists():
        raise ConfigError(f"{folder} is there already; take another name, or another --where")
    words = {"name": name, "kind": "".join(part.title() for part in name.split("_"))}
    templates = Environment(
        loader=PackageLoader("agentrl.cli.scaffold"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Python and YAML, and a name that is a plain word
    )
    folder.mkdir(parents=True)
    for template, file in _FILES.items():
        text = templates.get_template(template).render(words)
        write_durably(folder / file.format(name=name), text)
    return folder


def _check(name: str) -> None:
    """See whether a module can have this name, and none has it.

    Raises:
        ConfigError: it cannot, or one has.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is no name for a module: small letters, digits and underscores, as my_game"
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name!r} is the name of another module; take another one")
