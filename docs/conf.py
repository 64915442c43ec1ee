"""The documentation site (make docs): Sphinx reads the Markdown files of this folder."""

import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

project = "agentrl"
author = "the agentrl authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "agentrl"
html_search_scorer = str(HERE / "search_scorer.js")
default_role = "code"  # docstrings mark code as Markdown does
html_show_copyright = False
html_static_path: list[str] = []
html_favicon = "../agentrl/viewer/static/icon.svg"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # pages begin with the sentence that matters, then sections
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
napoleon_google_docstring = True

GENERATED = HERE / "generated"


def write_pages(_: Any) -> None:
    """Write the pages of the commands and of the public API."""
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "commands.md").write_text("\n".join(_commands()))
    (GENERATED / "api.md").write_text("\n".join(_api()))


def _commands() -> list[str]:
    import click

    from agentrl.cli import root_command

    def pages(command: click.Command, path: str, parent: click.Context | None) -> list[str]:
        settings = {**command.context_settings, "max_content_width": 88, "terminal_width": 88}
        context = click.Context(command, info_name=path.split()[-1], parent=parent, **settings)
        lines = [f"## {path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                lines += pages(inner, f"{path} {name}", context)
        return lines

    return ["# Commands", "", *pages(root_command(), "agentrl", None)]


def _api() -> list[str]:
    import agentrl
    from agentrl import replay

    about = (agentrl.__doc__ or "").strip()
    lines = ["# Python API", "", "```text", about, "```", ""]
    public = set(agentrl.__all__) - {"__version__", "replay", "Run"}
    names = [*sorted(public), *(f"replay.{name}" for name in sorted(replay.__all__))]
    for name in names:
        value = attrgetter(name)(agentrl)
        kind = "autoclass" if isinstance(value, type) else "autofunction"
        options = ["   :members:", "   :undoc-members:"] if kind == "autoclass" else []
        target = f"agentrl.{name}"
        lines += [f"## {target}", "", "```{eval-rst}", f".. {kind}:: {target}", *options, "```", ""]
    return lines


FIELD_TEXTS: dict[str, list[str]] = {}


def keep_field_text(_: Any, what: str, name: str, *arguments: Any) -> None:
    """Remember a field's docstring, in which Napoleon takes `words: more` for a type and a text."""
    if what in ("attribute", "property"):
        FIELD_TEXTS[name] = list(arguments[-1])


def restore_field_text(_: Any, what: str, name: str, *arguments: Any) -> None:
    """Undo what Napoleon did to a field's docstring."""
    if name in FIELD_TEXTS:
        arguments[-1][:] = FIELD_TEXTS.pop(name)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", keep_field_text, priority=400)  # Napoleon has 500
    app.connect("autodoc-process-docstring", restore_field_text, priority=600)
    app.connect("builder-inited", write_pages)
