"""Prompt templates: Jinja2 files that a user can edit."""

import sys
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from agentrl.config.load import path_of
from agentrl.errors import ConfigError

_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def find_template(path: str) -> Path:
    """A template by path, or looked for as modules are: beside the configuration that names it.

    Raises:
        ConfigError: there is none.
    """
    template = path_of(path, "env.prompt")
    folders = (Path(), *map(Path, sys.path), _PACKAGED, _PACKAGED.parent)
    for folder in folders:
        if (folder / template).is_file():
            return folder / template
    raise ConfigError(f"env.prompt={path}: no such template file")


def render_instructions(path: str | None, instructions: str) -> str:
    """The words that open an episode.

    Args:
        path: a template that may use `{{ instructions }}`; None for the instructions as they are.
        instructions: the translator's own words.

    Raises:
        ConfigError: the template does not exist or cannot be rendered.
    """
    if path is None:
        return instructions
    file = find_template(path)
    try:
        template = SandboxedEnvironment(undefined=StrictUndefined).from_string(
            file.read_text("utf-8")
        )
        return template.render(instructions=instructions).strip()
    except Exception as error:  # A template computes: it can fail in as many ways as a program.
        raise ConfigError(
            f"env.prompt={path}: cannot be rendered: {type(error).__name__}: {error}"
        ) from error
