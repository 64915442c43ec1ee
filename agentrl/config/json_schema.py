"""The configuration as a JSON schema, which lets editors complete, describe and check YAML files.

Types, bounds, defaults and descriptions come from the sections' declarations.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from agentrl.config.bounds import MAX_NUMBER, alternatives, declared_types
from agentrl.config.defaults_by_name import (
    DEFAULT_ALGORITHM,
    DEFAULT_SAMPLER,
    algorithm_defaults,
    sampler_defaults,
)
from agentrl.config.job_config import Config
from agentrl.extension_points import ALGORITHM, LOSS, SAMPLER, ExtensionPoint

Schema = dict[str, Any]

_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""Maps bounds of `annotated_types` to JSON schema keywords."""

_LATER = r"^\?\?\?$|\$\{"
"""Strings allowed instead of a number or boolean: a missing value (`???`) or an interpolation."""
_NUMBER = r"|^[-+]?[0-9._]+([eE][-+]?[0-9]+)?$"
"""Matches numbers such as `1e-3`, which is a string in YAML 1.1."""
_ANY_SIZE = {"minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
_PLAIN: dict[Any, Schema] = {
    int: {"type": ["integer", "string"], "pattern": _LATER, **_ANY_SIZE},
    float: {"type": ["number", "string"], "pattern": _LATER + _NUMBER, **_ANY_SIZE},
    bool: {"type": ["boolean", "string"], "pattern": _LATER},
    str: {"type": ["string", "number", "boolean"]},
    Any: {},
}


def json_schema() -> Schema:
    """Return the schema of a whole configuration, in JSON Schema 2020-12."""
    found = _section(Config)
    sections = found["properties"]
    algorithms = [algorithm_defaults(one.name) for one in ALGORITHM.extensions()]
    chosen = _chosen(ALGORITHM, algorithms, DEFAULT_ALGORITHM)
    losses = [algorithm_defaults(loss=one.name).loss for one in LOSS.extensions()]
    inner = chosen["properties"]["loss"]
    chosen["properties"]["loss"] = _chosen(LOSS, losses, None) | {"default": inner.get("default")}
    samplers = [sampler_defaults(one.name) for one in SAMPLER.extensions()]
    sections["algorithm"] = chosen
    sections["sampling"] = _chosen(SAMPLER, samplers, DEFAULT_SAMPLER)
    for name, section in sections.items():
        section.setdefault("description", f"See the section {name} of docs/configuration.md.")
    title = "Configuration of agentrl"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **found}


def _section(cls: type) -> Schema:
    described = dict(_descriptions(cls))
    properties = {}
    for field in dataclasses.fields(cls):
        schema = _of(declared_types(cls)[field.name])
        if text := described.get(field.name):
            schema["description"] = text
        default = field.default
        if isinstance(default, str | int | float) or default is None:
            schema["default"] = default
        properties[field.name] = schema
    about = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    plain = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"description": about, **plain} if about else plain


def _of(hint: Any) -> Schema:
    """Return a new schema object for a type and its bounds."""
    if (parts := alternatives(hint)) != (hint,):
        choices = [_of(part) for part in parts if part is not type(None)]
        schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
        return _or_null(schema) if type(None) in parts else schema
    if get_origin(hint) is Annotated:
        kind, *bounds = get_args(hint)
        schema = _of(kind)
        for bound in (one for one in bounds if not isinstance(one, str)):
            schema |= {_BOUNDS[name]: value for name, value in dataclasses.asdict(bound).items()}
        # Next to an exclusive bound, the general minimum of all numbers is redundant.
        if "exclusiveMinimum" in schema:
            del schema["minimum"]
        if "exclusiveMaximum" in schema:
            del schema["maximum"]
        return schema
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is list:
        return {"type": ["array", "string"], "items": _of(get_args(hint)[0]), "pattern": _LATER}
    if get_origin(hint) is dict:
        inner = _of(get_args(hint)[1])
        values = {"additionalProperties": inner} if inner else {}
        return {"type": ["object", "string"], "pattern": _LATER, **values}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _section(hint)
    return dict(_PLAIN[hint])


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return schema | {"type": [*kinds, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _chosen(point: ExtensionPoint, built_in: list[Any], default: str | None) -> Schema:
    """Return the schema of a section whose settings depend on its `name`, or just the name."""
    properties: Schema = {}
    for section in built_in:
        for name, schema in _section(type(section))["properties"].items():
            properties.setdefault(name, schema)
    names = [one.name for one in built_in]
    properties["name"] = {
        "type": "string",
        "examples": names,
        "description": f"A {point.kind}: one of {', '.join(names)}, or your own class.",
        **({} if default is None else {"default": default}),
    }
    return {
        "type": ["object", "string"],
        "properties": properties,
        # A user's class has its own settings.
        "if": {"type": "object", "properties": {"name": {"enum": names}}},
        "then": {"propertyNames": {"enum": list(properties)}},
    }


def _descriptions(cls: type) -> Iterator[tuple[str, str]]:
    """Map the settings of a class and its base classes to the docstrings below them."""
    for base in reversed([one for one in cls.__mro__ if dataclasses.is_dataclass(one)]):
        body = _body(base)
        for field, after in zip(body, [*body[1:], None], strict=True):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant):
                yield ast.unparse(field.target), " ".join(str(text.value).split())


def _body(cls: type) -> list[ast.stmt]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    return node.body
