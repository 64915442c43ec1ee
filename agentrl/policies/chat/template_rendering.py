"""Find a model's chat template and render it in a sandbox, as transformers does."""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentrl.errors import ConfigError
from agentrl.policies.models.model_adapter import read_json

TODAY = datetime(2024, 7, 26)
"""Fixed date for templates that print today's date, so prompts don't depend on the day of a run."""
MAX_CHARS = 10_000_000
"""Maximum length of a rendered conversation."""
DEADLINE_S = 10.0
"""Time limit of one rendering; the sandbox bounds a single `range`, but not nested loops."""
_CHECK = "agentrl_check_deadline"
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class _Generation(Extension):
    """`{% generation %}`, which marks the text of replies; its content is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Parse the block into its content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def chat_template(path: Path) -> str:
    """Read the chat template in a model's folder; empty if there is none."""
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if not (path / name).is_file():
            continue
        found = read_json(path / name).get("chat_template")
        # Some models have several named templates.
        if isinstance(found, list):
            found = {one["name"]: one["template"] for one in found}.get("default")
        if found:
            return str(found)
    return ""


def template_variables(path: Path) -> dict[str, Any]:
    """Read the variables that transformers passes to a model's chat template."""
    file = path / "tokenizer_config.json"
    settings = read_json(file) if file.is_file() else {}
    named = {name: settings.get(name) for name in _TOKENS}
    plain = {
        name: token.get("content") if isinstance(token, dict) else token
        for name, token in named.items()
    }
    return {**{n: t for n, t in plain.items() if t is not None}, "strftime_now": TODAY.strftime}


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    *,
    reply: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Render a conversation as text.

    Args:
        template: a chat template.
        messages: messages with `role` and `content`.
        variables: additional template variables.
        reply: whether to add the header of a reply (`add_generation_prompt`).
        tools: definitions of functions.

    Raises:
        ConfigError: the template fails on these messages, its output is too long, or rendering
            takes longer than `DEADLINE_S`.
    """
    texts, length, end = list[str](), 0, time.monotonic() + DEADLINE_S

    def check_deadline() -> None:
        if time.monotonic() > end:
            raise TimeoutError(f"rendering takes longer than {DEADLINE_S:g} s")

    try:
        for text in _compiled(template).generate(
            messages=[dict(message) for message in messages],
            tools=None if tools is None else list(tools),
            documents=None,
            add_generation_prompt=reply,
            **variables,
            **{_CHECK: check_deadline},
        ):
            check_deadline()
            texts.append(text)
            length += len(text)
            if length > MAX_CHARS:
                raise OverflowError(f"the output exceeds {MAX_CHARS:,} characters")
        return "".join(texts)
    except Exception as error:  # a template is code and may raise anything
        raise ConfigError(f"the chat template fails: {error}") from error


def takes_parts(template: str, variables: Mapping[str, Any]) -> bool:
    """Return whether a template accepts a message's content as a list of text and image parts.

    The templates of some vision models accept only a string that contains the image's placeholder.
    """
    parts = [{"type": "image"}, {"type": "text", "text": "qTEXTq"}]
    try:
        text = render(template, [{"role": "user", "content": parts}], variables)
    except ConfigError:
        return False
    return "qTEXTq" in text and "{'type'" not in text


@cache
def _compiled(template: str) -> Any:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    # Use transformers' version, because Jinja's own filter escapes HTML.
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **({"ensure_ascii": False} | options)
    )
    environment.globals["raise_exception"] = _raise
    tree = environment.parse(template)
    # `render` checks the time whenever the template yields text. Loops that do not start with
    # output, or whose output is collected by an enclosing block, check it in each iteration.
    blocks = tree.find_all((nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock))
    collected = [loop for block in blocks for loop in block.find_all(nodes.For)]
    for loop in list(tree.find_all(nodes.For)):
        if loop in collected or not isinstance(next(iter(loop.body), None), nodes.Output):
            check = nodes.Call(nodes.Name(_CHECK, "load"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(check).set_lineno(loop.lineno, override=True))
    return environment.from_string(tree)


def _raise(message: str) -> None:
    raise TemplateError(message)
