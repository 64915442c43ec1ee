"""The documentation site (make docs): Sphinx reads the Markdown files of this folder."""

import sys
from importlib import import_module
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
html_show_copyright = False
html_static_path: list[str] = []
html_favicon = "../agentrl/viewer/static/icon.svg"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # pages begin with the sentence that matters, then sections
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"
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

    about = (agentrl.__doc__ or "").strip()
    lines = ["# Python API", "", "```text", about, "```", ""]
    for name in sorted(set(agentrl.__all__) - {"__version__", "replay"}):
        value = getattr(agentrl, name)
        kind = "autoclass" if isinstance(value, type) else "autofunction"
        options = ["   :members:"] if kind == "autoclass" else []
        target = f"{value.__module__}.{value.__qualname__}"
        import_module(value.__module__)
        lines += [f"## {name}", "", "```{eval-rst}", f".. {kind}:: {target}", *options, "```", ""]
    return lines


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
