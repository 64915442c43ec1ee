"""Record what the vendors' own parsers read in a few hundred replies.

    python -m venv /tmp/vendors
    /tmp/vendors/bin/pip install --no-deps ui-tars==0.5.1 autoglm-gui==1.5.21
    /tmp/vendors/bin/pip install jsonschema
    /tmp/vendors/bin/python tests/actions/dialects/record_vendor_parsers.py \
        > tests/actions/dialects/data/vendor_parsers.json

Both packages are under the Apache license. autoglm-gui needs a web stack, of which its parser uses
nothing, so its file is loaded by itself.
"""

import contextlib
import importlib.metadata
import importlib.util
import io
import json
import random
from pathlib import Path
from typing import Any

SIZES = ((720, 1280), (1080, 2400), (1440, 3120), (2400, 1080), (1600, 2560))
TEXTS = (
    "hello", "two words", "it's", 'say "hi"', "a, b) and (c", "back\\slash", "two\nlines",
    "漢字 🙂", "", "x=1", "trailing\\n", "'", '"', "100%", "tab\there", "it's (fine)",
)  # fmt: skip
DIRECTIONS = ("up", "down", "left", "right")


def tars_replies(draw: random.Random) -> list[str]:
    """Replies of UI-TARS, sound and broken."""
    replies = []
    for _ in range(60):
        x, y, x2, y2 = (draw.randrange(1, 700) for _ in range(4))
        calls = [
            f"click(point='<point>{x} {y}</point>')",
            f"click(start_box='({x},{y})')",
            f"long_press(point='<point>{x} {y}</point>')",
            f"drag(start_point='<point>{x} {y}</point>', end_point='<point>{x2} {y2}</point>')",
            f"scroll(point='<point>{x} {y}</point>', direction='{draw.choice(DIRECTIONS)}')",
            f"click(start_box='({x},{y},{x + 20},{y + 10})')",
        ]
        replies.append(f"Thought: Next.\nAction: {draw.choice(calls)}")
    for text in TEXTS:
        escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        escaped = escaped.replace("\t", "\\t")
        replies.append(f"Thought: Type.\nAction: type(content='{escaped}')")
        replies.append(f"Action: finished(content='{escaped}')")
        replies.append(f"Action: open_app(app_name='{escaped}')")
    replies += ["Action: press_home()", "Action: press_back()", "Action: type(content='it's')"]
    return replies + [broken(draw, draw.choice(replies)) for _ in range(80)]


def glm_replies(draw: random.Random) -> list[str]:
    """Calls of AutoGLM, sound and broken."""
    replies = []
    for _ in range(60):
        x, y, x2, y2 = (draw.randrange(0, 1000) for _ in range(4))
        calls = [
            f'do(action="Tap", element=[{x},{y}])',
            f'do(action="Tap", element=[{x}, {y}], message="important")',
            f'do(action="Long Press", element=[{x},{y}])',
            f'do(action="Double Tap", element=[{x},{y}])',
            f'do(action="Swipe", start=[{x},{y}], end=[{x2},{y2}])',
        ]
        replies.append(draw.choice(calls))
    for text in TEXTS:
        literal = json.dumps(text, ensure_ascii=False)
        replies.append(f'do(action="Type", text={literal})')
        replies.append(f'do(action="Launch", app={literal})')
        replies.append(f"finish(message={literal})")
    replies += ['do(action="Back")', 'do(action="Home")', 'do(action="Wait", duration="3 seconds")']
    return replies + [broken(draw, draw.choice(replies)) for _ in range(80)]


def broken(draw: random.Random, reply: str) -> str:
    """A reply with something cut out, doubled or inserted."""
    at, length = draw.randrange(len(reply)), draw.randrange(1, 6)
    return draw.choice(
        (
            reply[:at],
            reply[:at] + reply[at + length :],
            reply[:at] + draw.choice("()[]'\",=x0-") + reply[at:],
            reply + "\n" + reply,
            reply.replace("(", "[", 1),
        )
    )


def read(parse: Any, reply: str) -> Any:
    """What a parser makes of a reply; None if it raises."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return parse(reply)
        except Exception:
            return None


def main() -> None:
    """Print the recording."""
    from ui_tars.action_parser import parse_action_to_structure_output, smart_resize

    draw = random.Random(21)
    cases = []
    for reply in tars_replies(draw):
        width, height = draw.choice(SIZES)
        for dialect, model in (("ui-tars-1.5", "qwen25vl"), ("ui-tars", "qwen2vl")):

            def parse(reply: str, model: str = model, size: Any = (width, height)) -> Any:
                found = parse_action_to_structure_output(
                    reply, 1000, size[1], size[0], model_type=model
                )
                return [[one["action_type"], one["action_inputs"]] for one in found]

            cases.append([dialect, [width, height], reply, read(parse, reply)])
    folder = importlib.util.find_spec("AutoGLM_GUI")
    assert folder is not None, "autoglm-gui is not installed"
    file = Path(next(iter(folder.submodule_search_locations or ()))) / "agents/glm/parser.py"
    spec = importlib.util.spec_from_file_location("glm_parser", file)
    assert spec is not None, f"{file} cannot be loaded"
    assert spec.loader is not None, f"{file} cannot be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for reply in glm_replies(draw):
        cases.append(["autoglm", [1080, 2400], reply, read(module.GLMParser().parse, reply)])
    resized = [[list(size), list(smart_resize(size[1], size[0])[::-1])] for size in SIZES]
    versions = {name: importlib.metadata.version(name) for name in ("ui-tars", "autoglm-gui")}
    cases = [json.dumps(case, ensure_ascii=False, default=repr) for case in cases]
    print(json.dumps({"versions": versions, "resized": resized})[:-1] + ', "cases": [')
    print(",\n".join(cases) + "\n]}")


if __name__ == "__main__":
    main()
