"""Prompt templates: Jinja2 files that a user can edit."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from agentrl.config.loading import path_of
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean

_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def find_template(path: str, what: str = "env.prompt") -> Path:
    """A template by path, or looked for as modules are: beside the configuration that names it.

    Args:
        path: of the file.
        what: the setting that it comes from.

    Raises:
        ConfigError: there is none.
    """
    template = path_of(path, what)
    folders = (Path(), *map(Path, sys.path), _PACKAGED, _PACKAGED.parent)
    for folder in folders:
        if (folder / template).is_file():
            return folder / template
    raise ConfigError(f"{what}={path}: no such template file")


def parsed(template: str, key: str) -> Template:
    """A template that renders in a sandbox.

    Args:
        template: Jinja2.
        key: the setting that it stands in, for the error.

    Raises:
        ConfigError: it is no template.
    """
    try:
        return SandboxedEnvironment(undefined=StrictUndefined).from_string(template)
    except TemplateError as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}: cannot be rendered: {what}") from error


def names_in(template: str) -> set[str]:
    """What a template is to be given; it must be one."""
    return meta.find_undeclared_variables(SandboxedEnvironment().parse(template))


def compiled(template: str, key: str, given: Collection[str] = ()) -> Callable[..., str]:
    """A template as a function of the names that it may use.

    Args:
        template: see `parsed`, like what follows.
        key: of the setting.
        given: those names, where they are known already.

    Raises:
        ConfigError: it is no template, or uses a name that it is not given; or, when it is called,
            it cannot be rendered.
    """
    found = parsed(template, key)
    if given and (odd := sorted(names_in(template) - {*given, *found.globals})):
        raise ConfigError(
            f"{key}: it uses {odd[0]!r}{did_you_mean(odd[0], given)}; it may use {', '.join(given)}"
        )

    def render(**names: Any) -> str:
        try:
            return found.render(**names).strip()
        except Exception as error:  # a template computes: it can fail in as many ways as a program
            raise ConfigError(
                f"{key}: cannot be rendered: {type(error).__name__}: {error}"
            ) from error

    return render


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
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"env.prompt={path}: cannot be read: {error}") from error
    return compiled(text, f"env.prompt={path}")(instructions=instructions)
