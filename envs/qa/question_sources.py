"""Open the source that `data` names: generated questions or a data set."""

import inspect
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.data.open_table import Selection, find_local, open_table, split_in
from agentrl.data.prompt_templates import compile_template, find_template
from agentrl.data.question import Question, QuestionSource
from agentrl.data.question_dataset import Dataset
from agentrl.envs.qa.arithmetic import Arithmetic
from agentrl.envs.qa.counting import Counting
from agentrl.envs.qa.geometry import Geometry
from agentrl.envs.qa.question_split import SPLITS
from agentrl.errors import ConfigError
from agentrl.text.name_suggestions import did_you_mean
from agentrl.types import IMAGE

DRAWN: Mapping[str, Callable[..., QuestionSource]] = {
    "counting": Counting,
    "geometry": Geometry,
    "arithmetic": Arithmetic,
}
_KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "split": ("a name", (str,)),
    "hold_out": ("a number in (0, 1)", (int, float)),
    "level": ("a name", (str,)),
    "pixels": ("an integer", (int,)),
    "keys": ("a mapping to column names, such as {problem: question}", (Mapping,)),
    "template": ("a string", (str,)),
    "image_root": ("a folder", (str, Path)),
    "on_bad": ("refuse or skip", (str,)),
    "skip_rows": ("a list of row numbers, counted from 0", (list,)),
    "name": ("a name", (str,)),
    "revision": ("a branch, tag or commit", (str,)),
    "max_rows": ("a positive integer", (int,)),
    "shuffle": ("a non-negative integer, or null", (int,)),
}
_SHOWN = ("problem", "content", "prompt")
"""Names of the question's text in templates, as for rows of data sets."""
_OF_ROWS = {"on_bad": "refuse", "shuffle": 0, "skip_rows": []}
"""Defaults of settings that apply to data sets only, not to generated questions."""
_opening = threading.Lock()


def open_source(data: str | Mapping[str, str], **settings: Any) -> QuestionSource:
    """Open the source of questions; a data set is read once per process.

    Raises:
        ConfigError: the data is missing or bad.
    """
    _check_kinds(settings)
    settings = {**settings, "keys": dict(settings["keys"] or {})}
    if isinstance(data, Mapping):
        data, settings["split"] = _of_split(data, settings["split"]), None
    if not isinstance(data, str | Path) or not str(data):
        raise ConfigError(
            f"data={data!r}: must be a file, a folder, a Hugging Face Hub id, or one of "
            f"{', '.join(DRAWN)}"
        )
    data = str(data)
    if data in DRAWN:
        return _drawn(data, settings)
    for name in ("level", "pixels"):
        if settings[name] is not None:
            raise ConfigError(
                f"{name}={settings[name]!r}: applies only to generated questions "
                f"({', '.join(DRAWN)}), not to data={data}; remove {name}"
            )
    path = find_local(split_in(data)[0])
    stamp = path.stat().st_mtime_ns if path is not None and path.is_file() else 0
    place = f"{Path.cwd()} {path} {stamp}"
    with _opening:
        return _read(data, json.dumps(settings, sort_keys=True, default=str), place)


def _check_kinds(settings: Mapping[str, Any]) -> None:
    for name, (words, kinds) in _KINDS.items():
        value = settings[name]
        if value is None:
            continue
        least = {"shuffle": 0, "max_rows": 1}.get(name)
        negative = least is not None and isinstance(value, int) and value < least
        if negative or isinstance(value, bool) or not isinstance(value, kinds):
            raise ConfigError(f"{name}={value!r}: must be {words}")
    for thing, column in (settings["keys"] or {}).items():
        if not isinstance(column, str | None):
            raise ConfigError(
                f"keys.{thing}={column!r}: must be a column name, or null if there is no column"
            )


def _of_split(data: Mapping[str, str], split: str | None) -> str:
    if split is None or split not in data:
        known = ", ".join(map(str, data))
        hint = did_you_mean(str(split), map(str, data))
        raise ConfigError(f"split={split}: data has the splits {known}; choose one{hint}")
    return data[split]


def _drawn(data: str, settings: Mapping[str, Any]) -> QuestionSource:
    taken = inspect.signature(DRAWN[data]).parameters
    given = {
        name: settings[name]
        for name in _KINDS
        if settings[name] != _OF_ROWS.get(name) and settings[name] != {}
    }
    if settings["streaming"]:
        given["streaming"] = True
    if given.get("hold_out") == 0 and "hold_out" not in taken:
        del given["hold_out"]
    template = _template_text(given.pop("template", None))
    for name, value in given.items():
        if name not in taken:
            raise ConfigError(
                f"{name}={value!r}: {data} generates its questions and accepts only "
                f"{', '.join(taken)}, template; remove {name}"
            )
    if settings["grade"] == "choice":
        raise ConfigError(
            f"grade=choice: the questions of {data} have no options; use exact or numeric"
        )
    if given.get("hold_out") and "split" not in given:
        raise ConfigError(_no_share(given["hold_out"], None))
    try:
        source = DRAWN[data](**given)
    except ValueError as error:
        raise ConfigError(f"{error}") from None
    return source if template is None else _Templated(source, template)


class _Templated:
    """Generated questions whose text is rendered by a template, which makes them complete."""

    def __init__(self, source: QuestionSource, template: str) -> None:
        self._source, self._key = source, f"template={template!r:.80}"
        self._render = compile_template(template, self._key, _SHOWN)
        self.question(0)

    def question(self, seed: int) -> Question:
        found = self._source.question(seed)
        text = self._render(**dict.fromkeys(_SHOWN, found.problem))
        if text.count(IMAGE) != found.problem.count(IMAGE):
            raise ConfigError(f"{self._key}: must show {IMAGE} as often as the question does")
        return replace(found, problem=text, system="")


def _template_text(template: str | None) -> str | None:
    """Return the text of a template, which may be in a file."""
    if template is None or not template.endswith(".jinja"):
        return template
    return find_template(template, "template").read_text("utf-8")


def _no_share(hold_out: float, split: str | None) -> str:
    return (
        f"hold_out={hold_out}, split={split}: hold_out must be in (0, 1), and split must be eval "
        "(the held-out questions) or train (the others)"
    )


@lru_cache(maxsize=8)
def _read(data: str, settings: str, place: str) -> QuestionSource:
    # `place` belongs to the cache key, because a name may refer to a different file later.
    chosen = json.loads(settings)
    split, hold_out = chosen["split"], chosen["hold_out"]
    part = None
    if hold_out:
        if not 0 < hold_out < 1 or split not in SPLITS:
            raise ConfigError(_no_share(hold_out, split))
        part, split = (split, hold_out), None
    root = chosen["image_root"]
    if root is not None and not Path(root).expanduser().is_dir():
        raise ConfigError(f"image_root={root}: this folder does not exist")
    return Dataset(
        open_table(
            data,
            Selection(
                split=split,
                name=chosen["name"],
                revision=chosen["revision"],
                streaming=bool(chosen["streaming"]),
                max_rows=chosen["max_rows"],
            ),
        ),
        data,
        keys=chosen["keys"],
        template=_template_text(chosen["template"]),
        image_root=None if root is None else Path(root).expanduser(),
        on_bad=chosen["on_bad"],
        shuffle=chosen["shuffle"],
        part=part,
        grade=chosen["grade"],
        skip_rows=frozenset(chosen["skip_rows"]),
    )
