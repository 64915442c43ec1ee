"""Creates a new environment from a template: a folder that can be trained immediately."""

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
    """Write a small game, its translator, players, reward, configuration and test.

    Args:
        where: parent folder.
        name: name of the new folder and its module.

    Returns:
        The new folder.

    Raises:
        ConfigError: the name is not a valid module name, or is taken.
    """
    _check(name)
    folder = where / name
    if folder.exists():
        raise ConfigError(f"{folder} already exists; choose another name or another --where")
    words = {"name": name, "kind": "".join(part.title() for part in name.split("_"))}
    templates = Environment(
        loader=PackageLoader("agentrl.cli.scaffold"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Python and YAML, and the name is a plain identifier
    )
    folder.mkdir(parents=True)
    for template, file in _FILES.items():
        text = templates.get_template(template).render(words)
        write_durably(folder / file.format(name=name), text)
    return folder


def _check(name: str) -> None:
    """Check that a name is a valid module name and not taken.

    Raises:
        ConfigError: it is not valid, or it is taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is not a module name; use lowercase letters, digits and underscores, "
            "as in my_game"
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name!r} is the name of an existing module; choose another one")
