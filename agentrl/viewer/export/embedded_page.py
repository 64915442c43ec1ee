"""Render self-contained HTML pages: no scripts, no network, embedded images."""

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentrl.replay import Run
from agentrl.text import format_signed, printable
from agentrl.viewer.frame_images import webp

_MAX_TEXT = 20_000
"""Characters shown of one text."""


def render(template: str, **values: Any) -> bytes:
    """Render one of the package's templates. All text from models and phones is escaped.

    Args:
        template: file name, such as `episode.html.jinja`.
        **values: the template's variables.
    """
    environment = Environment(
        loader=PackageLoader("agentrl.viewer.export"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    environment.filters["signed"] = format_signed
    style = environment.get_template("single.css.jinja").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template).render(
        # Inserted into <style> unescaped: it is our own file, and the content security policy
        # admits nothing but its hash.
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        **values,
    )
    return page.encode()


def _visible(value: Any) -> Any:
    """Make text printable; leave markup and numbers as they are."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if plain else value


def shortened(text: str) -> str:
    """Shorten a text to what a page can show."""
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT:,} more characters)"


class EmbeddedFrames:
    """Frames as data URIs, each encoded once.

    Args:
        run: the recorded run.
        width: largest width in pixels.
    """

    def __init__(self, run: Run, width: int) -> None:
        self._run, self._width = run, width
        self.uri = cache(self._uri)

    def _uri(self, frame_id: str) -> str | None:
        """A frame as data URI; None if it is missing or damaged."""
        image = self._run.frame(frame_id)
        if image is None:
            return None
        return f"data:image/webp;base64,{base64.b64encode(webp(image, self._width)).decode()}"
