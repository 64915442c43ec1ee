"""The arguments of vLLM's engine, parsed from its source: importing vLLM takes over ten seconds."""

import ast
from importlib.util import find_spec
from pathlib import Path

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as `max_lora_rank`."""


def arguments() -> list[str] | None:
    """The fields of vLLM's `AsyncEngineArgs`.

    Returns:
        None if the source does not have the expected form; then vLLM itself must check.
    """
    spec = find_spec("vllm")
    source = Path(spec.origin or "").parent / "engine" / "arg_utils.py" if spec else Path()
    if not source.is_file():
        return None
    tree = ast.parse(source.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: list[str] = []
    for name, bases in (("EngineArgs", []), ("AsyncEngineArgs", ["EngineArgs"])):
        if name not in classes or [ast.unparse(base) for base in classes[name].bases] != bases:
            return None
        fields = (node for node in classes[name].body if isinstance(node, ast.AnnAssign))
        found += [ast.unparse(node.target) for node in fields]
    return found
