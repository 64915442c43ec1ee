"""Find, compile and render prompt templates, which are Jinja2 files that users can edit."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from agentrl.errors import ConfigError
from agentrl.files import path_of
from agentrl.text.name_suggestions import did_you_mean

_PACKAGED = Path(__file__).resolve().parent.parent / "configs"


def find_template(path: str, what: str = "env.prompt") -> Path:
    """Find a template in the current folder, on sys.path, or in the package."""
    template = path_of(path, what)
    folders = (Path(), *map(Path, sys.path), _PACKAGED, _PACKAGED.parent)
    for folder in folders:
        if (folder / template).is_file():
            return folder / template
    raise ConfigError(f"{what}={path}: no such template file")


def parse_template(template: str, key: str) -> Template:
    """Parse a template for rendering in a sandbox."""
    try:
        return SandboxedEnvironment(undefined=StrictUndefined).from_string(template)
    except TemplateError as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{key}: cannot be rendered: {what}") from error


def template_variables(template: str) -> set[str]:
    """Return the variables of a valid template."""
    return meta.find_undeclared_variables(SandboxedEnvironment().parse(template))


def compile_template(template: str, key: str, given: Collection[str] = ()) -> Callable[..., str]:
    """Compile a template to a function of its variables.

    Args:
        template: see `parse_template`.
        key: see `parse_template`.
        given: variables that the template may use, if already known.

    Raises:
        ConfigError: the template has a syntax error or uses an unknown variable. The function
            raises it if rendering fails.
    """
    found = parse_template(template, key)
    if given and (odd := sorted(template_variables(template) - {*given, *found.globals})):
        raise ConfigError(
            f"{key}: unknown variable {odd[0]!r}{did_you_mean(odd[0], given)}; the template can "
            f"use {', '.join(given)}"
        )

    def render(**names: Any) -> str:
        try:
            return found.render(**names).strip()
        # A template is code and may raise any exception.
        except Exception as error:
            raise ConfigError(
                f"{key}: cannot be rendered: {type(error).__name__}: {error}"
            ) from error

    return render


def render_instructions(path: str | None, instructions: str) -> str:
    """Render the system message of an episode.

    Args:
        path: template that may use `{{ instructions }}`; None keeps the instructions unchanged.
        instructions: the translator's instructions.
    """
    if path is None:
        return instructions
    file = find_template(path)
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"env.prompt={path}: cannot be read: {error}") from error
    return compile_template(text, f"env.prompt={path}")(instructions=instructions)
