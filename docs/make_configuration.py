"""Write the tables of docs/configuration.md from agentrl/config.

Run: python docs/make_configuration.py
"""

import ast
import inspect
from pathlib import Path
from typing import Any

from agentrl.config.defaults_by_name import DEFAULT_ALGORITHM, DEFAULT_SAMPLER
from agentrl.extension_points import ALGORITHM, LOSS, SAMPLER, ExtensionPoint

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "configuration.md"
CONFIG = DOCS.parent / "agentrl" / "config"
MARK = "<!-- Below this line: python docs/make_configuration.py -->\n"
HEAD = "| setting | type | default | |\n|---|---|---|---|\n"

Classes = dict[str, ast.ClassDef]
_ALIASES: dict[str, ast.expr] = {}
"""Types and bounds that have a name."""
_TYPOS = 100_000
"""Upper bounds from here on are not listed: they only catch typos."""
_SIGNS = {"Gt": ">", "Ge": ">=", "Lt": "<", "Le": "<="}


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page: the text unchanged, the tables regenerated."""
    words, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has no line {MARK!r}"
    return words + MARK + tables()


def tables() -> str:
    """One section per class of settings, in the order of the tree."""
    classes = {}
    for file in CONFIG.glob("*.py"):
        for node in _parsed(file).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = _with_base(node, classes)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                _ALIASES[node.targets[0].id] = node.value
    first = f"\n## Top level\n\n{HEAD}{_rows(classes['Config'], '', classes)}"
    return "".join([first, *_sections(classes["Config"], "", classes)])


def _with_base(config: ast.ClassDef, classes: Classes) -> ast.ClassDef:
    """A class without settings of its own gets those of its base, which comes before it."""
    bases = [classes[b.id] for b in config.bases if isinstance(b, ast.Name) and b.id in classes]
    if bases and not _fields(config):
        config.body += bases[0].body[1:]
    return config


def _sections(config: ast.ClassDef, prefix: str, classes: Classes) -> list[str]:
    parts = []
    for field, _ in _fields(config):
        inner = _section(field, classes)
        if inner is None:
            continue
        name = prefix + _name(field)
        rows = _rows(inner, "" if _is_list(field) else f"{name}.", classes)
        about = ast.get_docstring(inner) or ""
        parts.append(f"\n## {name}\n\n{about}{_absent(field)}\n\n{HEAD}{rows}")
        parts += _sections(inner, f"{name}.", classes)
        if name == "algorithm.loss":
            parts.append(_own_settings(LOSS, "algorithm.loss.", classes))
        if name == "algorithm":
            parts.append(_own_settings(ALGORITHM, "algorithm.", classes))
        if name == "sampling":
            parts.append(_own_settings(SAMPLER, "sampling.", classes))
    return parts


def _own_settings(point: ExtensionPoint, prefix: str, classes: Classes) -> str:
    """The settings that single algorithms or losses have, each listed where it is defined."""
    rows = []
    shared = [_name(field) for field, _ in _fields(classes["AlgorithmConfig"])]
    for extension in point.extensions():
        tree = ast.parse(inspect.getsource(point.resolve(extension.name)))
        (config,) = [
            node for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.name == "Config"
        ] or [None]  # fmt: skip
        if config is None:
            continue
        for field, words in _fields(config):
            inner, key = _section(field, classes), prefix + _name(field)
            if inner is not None and _name(field) not in shared:
                own = _rows(inner, f"{key}.", classes).splitlines()
                rows += [f"| `{extension.name}` {row}" for row in own]
            elif inner is None and words:  # not merely another default
                rows.append(f"| `{extension.name}` {_row(field, words, prefix)}")
    kind = f"## {prefix}*, by {point.kind}"
    about = (
        "Subclasses have the settings of their base, such as `turn_ppo` those of `ppo`."
        if point is not SAMPLER
        else ""
    )
    head = f"| {point.kind} " + HEAD.replace("|---|", "|---|---|", 1)
    text = f"{about}\n\n" if about else ""
    return f"\n{kind}\n\n{text}{head}" + "\n".join(rows) + "\n"


def _absent(field: ast.AnnAssign) -> str:
    """What a configuration without this section has."""
    if _is_list(field):
        return " A list of these; empty by default."
    default = "" if field.value is None else _default(field.value)
    return " `null` by default." if default == "`null`" else ""


def _is_list(field: ast.AnnAssign) -> bool:
    return ast.unparse(field.annotation).startswith("list[")


def _rows(config: ast.ClassDef, prefix: str, classes: Classes) -> str:
    return "".join(
        f"{_row(field, words, prefix)}\n"
        for field, words in _fields(config)
        if _section(field, classes) is None
    )


def _row(field: ast.AnnAssign, words: str, prefix: str) -> str:
    return (
        f"| `{prefix}{_name(field)}` | {_type(field.annotation)} "
        f"| {_default(field.value, prefix)} | {' '.join(words.split())} |"
    )


def _fields(config: ast.ClassDef) -> list[tuple[ast.AnnAssign, str]]:
    """The fields of a class, each with the docstring below it."""
    following = [*config.body[1:], None]
    return [
        (field, _words(after))
        for field, after in zip(config.body, following, strict=True)
        if isinstance(field, ast.AnnAssign)
    ]


def _words(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def _section(field: ast.AnnAssign, classes: Classes) -> ast.ClassDef | None:
    """The class of settings that a field holds: one, a list of them, or perhaps none."""
    names = [node.id for node in ast.walk(field.annotation) if isinstance(node, ast.Name)]
    return next((classes[name] for name in names if name in classes), None)


def _name(field: ast.AnnAssign) -> str:
    assert isinstance(field.target, ast.Name)
    return field.target.id


def _type(node: ast.expr) -> str:
    if isinstance(node, ast.Name) and node.id in _ALIASES:
        node = _ALIASES[node.id]
    if isinstance(node, ast.BinOp):
        return f"{_type(node.left)} or {_type(node.right)}"
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        return ", ".join(f"`{choice}`" for choice in _listed(ast.literal_eval(node.slice)))
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        kind, *declared = node.slice.elts
        calls = [_bound(one) for one in declared if isinstance(one, ast.Call)]
        bounds = " and ".join(f"{sign} {value}" for sign, value in calls if value < _TYPOS)
        return f"`{ast.unparse(kind)} {bounds}`"
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "dict":
        assert isinstance(node.slice, ast.Tuple)
        return f"`dict[str, {_type(node.slice.elts[1]).strip('`')}]`".replace("any", "Any")
    text = ast.unparse(node)
    return "any" if text == "Any" else f"`{'null' if text == 'None' else text}`"


def _bound(call: ast.Call) -> tuple[str, float]:
    """Sign and value of a bound of `annotated_types`."""
    assert isinstance(call.func, ast.Name)
    value = call.args[0]
    if isinstance(value, ast.Name):
        value = _ALIASES[value.id]
    return _SIGNS[call.func.id], ast.literal_eval(value)


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _default(node: ast.expr | None, prefix: str = "") -> str:
    """A default as YAML has it."""
    if node is None:  # a name
        return f"`{DEFAULT_SAMPLER}`" if prefix == "sampling." else f"of `{DEFAULT_ALGORITHM}`"
    if not isinstance(node, ast.Call):
        value = ast.literal_eval(node)
        return "must be given" if value == "???" else f"`{_yaml(value)}`"
    factory = node.keywords[0].value
    if isinstance(factory, ast.Lambda):
        return f"`{_yaml(ast.literal_eval(factory.body))}`"
    return {"list": "`[]`", "dict": "`{}`"}.get(ast.unparse(factory), "")


def _yaml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
