"""Pages that need nothing but themselves: no script, no network, pictures within."""

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentrl.replay import Run
from agentrl.text import format_signed, printable
from agentrl.viewer.frame_images import webp

_LONGEST = 20_000
"""Characters of one text that are shown."""


def render(template: str, **values: Any) -> bytes:
    """A page from a template of ours. Everything that a model or a phone said is escaped.

    Args:
        template: such as `episode.html.jinja`.
        **values: for it.
    """
    environment = Environment(
        loader=PackageLoader("agentrl.viewer.export"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    environment.filters["signed"] = format_signed
    style = environment.get_template("single.css.jinja").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template).render(
        # Written without a filter into <style>: it is a file of ours, and its hash is all that
        # the policy admits.
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        **values,
    )
    return page.encode()


def _visible(value: Any) -> Any:
    """Text as a file can hold and a page can show it; markup and numbers as they are."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if plain else value


def shortened(text: str) -> str:
    """No longer than a page can show."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text) - _LONGEST} characters more)"


class Embedded:
    """Frames as data URIs, each made once.

    Args:
        run: where they are.
        width: in pixels, at most.
    """

    def __init__(self, run: Run, width: int) -> None:
        self._run, self._width = run, width
        self.uri = cache(self._uri)

    def _uri(self, frame_id: str) -> str | None:
        """A frame; None for one that is missing or damaged."""
        image = self._run.frame(frame_id)
        if image is None:
            return None
        return f"data:image/webp;base64,{base64.b64encode(webp(image, self._width)).decode()}"
