"""Prompts, round trips and refusals of the built-in dialects."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.actions.dialect import Screen, open_dialect
from agentrl.actions.dialects.ui_tars import UITars
from agentrl.actions.screen_actions import (
    AskUser,
    Done,
    DoubleTap,
    Key,
    LongPress,
    OpenApp,
    ScreenAction,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.errors import ActionError, ConfigError
from agentrl.extension_points import DIALECT

OPENED = {one.name: open_dialect(one.name) for one in DIALECT.extensions()}
SCREEN = Screen(size=(1080, 2400), seen=(1092, 2408))
APPS = (
    "Camera", "Chrome", "Clock", "Contacts", "Dialer", "Files", "Settings", "Markor", "Tasks",
    "Simple Draw Pro", "Simple Gallery Pro", "Simple SMS Messenger", "Audio Recorder",
    "Pro Expense", "Broccoli APP", "OSMand", "VLC", "Joplin", "Retro Music", "OpenTracks",
    "Simple Calendar Pro",
)  # fmt: skip
names = st.sampled_from(sorted(OPENED))
sizes = st.tuples(st.integers(300, 4000), st.integers(300, 4000))
letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
texts = st.text(st.one_of(letters, st.sampled_from("'\"\\<>()[]{},=\n\t")), max_size=30)
position = st.floats(0, 1)


def system(name: str, **kwargs: object) -> str:
    dialect = open_dialect(name, kwargs)
    accepts = [kind for kind in dialect.says if kind not in (AskUser, DoubleTap)]
    return dialect.system("", SCREEN, accepts if name == "mai-ui" else dialect.says)


def autoglm() -> str:
    """The prompt of the published English actions."""
    published = (Tap, Type, Swipe, LongPress, OpenApp, Key, Done)
    before, _, rest = open_dialect("autoglm").system("", SCREEN, published).partition("- **Home**")
    return f"{before}- **Finish**{rest.partition('- **Finish**')[2]}"


def tars(name: str) -> str:
    opened = open_dialect(name)
    assert isinstance(opened, UITars)
    return opened.prompt(opened.says)


@pytest.mark.parametrize(
    ("prompt", "digest"),
    [
        # QwenLM/Qwen2.5-VL f0af299 and Qwen3-VL 9658872, cookbooks/mobile_agent.ipynb
        (lambda: system("qwen2.5-vl-mobile-use"), "08758deb12614643"),
        (lambda: system("qwen3-vl-mobile-use"), "9d060af15f62acb3"),
        # X-PLUG/MobileAgent 11cea57, Mobile-Agent-v3.5/mobile_use/utils.py
        (lambda: system("gui-owl"), "28235cbaf0bd9692"),
        # Tongyi-MAI/MAI-UI 4dd07b9, src/prompt.py, with and without thinking
        (lambda: system("mai-ui", apps=APPS), "86b907c1e936b8c9"),
        (lambda: system("mai-ui", apps=APPS, thinking=False), "4349f74f53022e5b"),
        # bytedance/UI-TARS 582f3a7, README_v1.md and codes/ui_tars/prompt.py
        (lambda: tars("ui-tars"), "059f1054d8e0de7c"),
        (lambda: f"{tars('ui-tars-1.5')}TASK\n", "1b74cd765b09a0f6"),
        # zai-org/Open-AutoGLM 6b18d7b, phone_agent/config/prompts_en.py, without the date
        (autoglm, "94254a33e42e00c5"),
    ],
)
def test_a_prompt_is_the_published_one(prompt: Callable[[], str], digest: str) -> None:
    assert hashlib.sha256(prompt().encode()).hexdigest().startswith(digest)


@given(names, sizes, position, position)
def test_a_tap_is_parsed_within_half_a_step_of_what_the_dialect_can_say(
    name: str, size: tuple[int, int], x: float, y: float
) -> None:
    screen = Screen(size=size, seen=OPENED[name].served_size(size))
    parsed = OPENED[name].parse(OPENED[name].spell(Tap(x, y), screen), screen)
    assert isinstance(parsed, Tap)
    steps = (99, 99) if name in ("tag", "tool") else (999, 999)
    if name in ("androidworld_json", "qwen2_5_vl_mobile_use", "ui_tars_1_5"):
        steps = screen.size if name == "androidworld_json" else screen.seen
    half = 1.01 if name == "autoglm" else 0.51  # its numbers end at 999, one step before the edge
    assert abs(parsed.x - x) <= half / steps[0]
    assert abs(parsed.y - y) <= half / steps[1]


@given(names, texts, texts.map(lambda text: text.replace("<", "").replace("Action:", "")))
def test_any_typed_text_survives(name: str, text: str, thought: str) -> None:
    reply = OPENED[name].spell(Type(text), SCREEN, thought.replace("\n", " ").replace("Action", ""))
    assert OPENED[name].parse(reply, SCREEN) == Type(text)


@given(names, st.data())
def test_a_broken_reply_is_an_action_or_an_action_error(name: str, data: st.DataObject) -> None:
    dialect = OPENED[name]
    examples: list[ScreenAction] = [Tap(0.5, 0.5), Swipe(0.5, 0.8, 0.5, 0.2), Type("a'b\"c")]
    reply = dialect.spell(data.draw(st.sampled_from(examples)), SCREEN)
    at = data.draw(st.integers(0, len(reply)))
    inserted = data.draw(st.text(max_size=4))
    cut = data.draw(st.integers(0, 6))
    try:
        parsed = dialect.parse(reply[:at] + inserted + reply[at + cut :], SCREEN)
    except ActionError:
        return
    assert isinstance(parsed, dialect.says)


_MB = 1 << 20
HOSTILE = {
    "letters": "x" * _MB,
    "NUL": "\0" * _MB,
    "lone surrogates": "\ud800" * _MB,
    "openings": "<action>" * (_MB // 8) + "<tool_call>" * (_MB // 11) + "<answer>do(" * (_MB // 11),
    "actions": "<action>tap(0.5, 0.5)</action>\n" * (_MB // 31),
    "not a number": '<action>tap(NaN, 1e999)</action> Action: {"action_type": "click", "x": 1e999}',
    "digits": f"<action>tap({'9' * _MB}, 0.5)</action>",
    "commas": f"<action>tap({',' * _MB})</action>",
    "nesting": f"<tool_call>{'[' * _MB}</tool_call>\nAction: {'[' * _MB}",
    "calls": "Action: " + "click(" * (_MB // 6),
    "escapes": "Action: type(content='" + "\\'" * (_MB // 2) + "')",
    "strings": '<answer>do(action="Type", text="' + '") do(' * (_MB // 6),
    "blanks": 'do(action="Wait", duration="1' + " " * _MB + '")',
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_reply_of_a_megabyte_is_refused_at_once_in_a_short_line(what: str) -> None:
    for name, dialect in OPENED.items():
        began = time.process_time()
        with pytest.raises(ActionError) as refused:
            dialect.parse(HOSTILE[what], SCREEN)
        assert time.process_time() - began < 5, name
        assert len(str(refused.value)) < 500, name


def call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "mobile_use", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("name", "reply", "action"),
    [
        ("qwen3-vl-mobile-use", call('{"action": "system_button", "button": "Menu"}'), Key("MENU")),
        ("gui-owl", call('{"action": "key", "text": "volume_up"}'), Key("VOLUME_UP")),
        ("gui-owl", call('{"action": "wait"}'), Wait(2.0)),
        ("mai-ui", call('{"action": "system_button", "button": "menu"}'), Key("MENU")),
        ("mai-ui", call('{"action": "wait"}'), Wait(1.0)),
        ("mai-ui", call('{"action": "terminate", "status": "fail"}'), Done(status="fail")),
        ("gui-owl", call('{"action": "terminate", "status": "failure"}'), Done(status="failure")),
        ("autoglm", '<answer>do(action="Wait", duration="2.5 seconds")</answer>', Wait(2.5)),
        ("autoglm", '<think>a</think>do(action="Type", text="say "hi"")', Type('say "hi"')),
        ("autoglm", '<answer>do(action="Type", text="C:\\dir")</answer>', Type("C:\\dir")),
        (
            "ui-tars",
            "Action: click(start_box='<|box_start|>(500,250)<|box_end|>')",
            Tap(0.5, 0.25),
        ),
        ("ui-tars-1.5", "Action: type(content='it's\\n')", Type("it's\n")),
        ("androidworld-json", 'Action: {"action_type": "wait"}', Wait(1.0)),
    ],
)
def test_each_dialect_has_its_own_words(name: str, reply: str, action: ScreenAction) -> None:
    assert open_dialect(name).parse(reply, SCREEN) == action


@pytest.mark.parametrize("name", ["androidworld-json", "gui-owl", "mai-ui"])
@pytest.mark.parametrize(
    ("status", "failed"), [("success", False), ("infeasible", True), ("fail", True)]
)
def test_the_outcome_of_another_dialect_is_said_in_its_own_words(
    name: str, status: str, failed: bool
) -> None:
    dialect = open_dialect(name)
    parsed = dialect.parse(dialect.spell(Done(status=status), SCREEN), SCREEN)
    assert isinstance(parsed, Done)
    assert parsed.failed == failed


@pytest.mark.parametrize(
    ("name", "reply", "reason"),
    [
        ("qwen3-vl-mobile-use", call('{"action": "click"}'), "requires coordinate"),
        ("qwen3-vl-mobile-use", call('{"action": "wait"}'), "requires time"),
        ("qwen3-vl-mobile-use", call('{"action": "open", "text": "Clock"}'), "must be one of"),
        (
            "qwen3-vl-mobile-use",
            call('{"action": "click", "coordinate": [1000, 1]}'),
            "1000 is outside the screen",
        ),
        (
            "qwen3-vl-mobile-use",
            call('{"action": "click", "coordinate": [true, 1]}'),
            "'True' is not a number",
        ),
        ("qwen3-vl-mobile-use", call('{"action": "click", "coordinate": [1]}'), "is not a point"),
        ("qwen3-vl-mobile-use", call('{"action": "wait", "time": 1e9}'), "from 0 to 60"),
        ("qwen3-vl-mobile-use", call('{"action": "system_button", "button": "back"}'), "'Back'"),
        ("gui-owl", call('{"action": "key", "text": "power"}'), "must be one of BACK"),
        ("mai-ui", call('{"action": "swipe", "direction": "north"}'), "must be one of up"),
        ("mai-ui", call('{"action": "wait", "time": 3}'), "does not accept 'time'"),
        ("ui-tars", "Action: drag(start_box='(1,1)', end_box='(2,2)')", "must be one of"),
        ("ui-tars-1.5", "click(point='<point>1 2</point>')", "no lines of the reply start"),
        ("ui-tars-1.5", "Action: click(point='<point>5000 2</point>')", "outside the screen"),
        ("ui-tars-1.5", "Action: click(point=f('1 2'))", "cannot be parsed"),
        ("autoglm", '<answer>do(action="Fly")</answer>', "must be one of Tap"),
        ("autoglm", '<answer>do(action="Tap", element=[1,2,3])</answer>', "is not a point"),
        ("autoglm", '<answer>do(action="Wait", duration="long")</answer>', "is not a duration"),
        (
            "androidworld-json",
            'Action: {"action_type": "click", "index": 3}',
            "index is not supported",
        ),
        ("androidworld-json", 'Action: {"action_type": "click", "x": 1080, "y": 1}', "outside"),
    ],
)
def test_a_refusal_says_why(name: str, reply: str, reason: str) -> None:
    with pytest.raises(ActionError, match=reason):
        open_dialect(name).parse(reply, SCREEN)


def test_a_position_outside_may_be_moved_to_the_edge() -> None:
    reply = call('{"action": "click", "coordinate": [1200, -3]}')
    assert open_dialect("gui-owl", {"outside": "clamp"}).parse(reply, SCREEN) == Tap(1.0, 0.0)


def test_a_text_history_lists_earlier_actions() -> None:
    dialect = open_dialect("qwen3-vl-mobile-use")
    steps = [dialect.spell(Tap(0.5, 0.5), SCREEN, "First."), "nonsense"]
    text = dialect.opening("Win.", SCREEN, dialect.says, steps, "<image>")
    assert "Step 1: click; Step 2: nonsense; " in text


@pytest.mark.parametrize(
    ("name", "said"), [("qwen3-vl-mobile-use", "Action"), ("androidworld-json", "Reason")]
)
def test_an_earlier_reply_of_blanks_does_not_delay_the_next_prompt(name: str, said: str) -> None:
    dialect, start = open_dialect(name), time.process_time()
    reply = f"{said}: look{' ' * 20_000}here  \nend"
    assert "look  " in dialect.opening("Win.", SCREEN, dialect.says, [reply], "<image>")
    assert time.process_time() - start < 0.5


def test_a_refusal_of_a_long_name_is_short() -> None:
    with pytest.raises(ActionError) as refused:
        open_dialect("ui-tars").parse(f"Action: {'a' * 5000}()", SCREEN)
    assert len(str(refused.value)) < 200


def test_a_dialect_whose_coordinates_leave_the_screen_is_refused_before_any_work(
    tmp_path: Path,
) -> None:
    file = tmp_path / "wide_lines.py"
    example = Path(__file__).parents[3] / "examples/extend/dialect.py"
    file.write_text(example.read_text().replace("1000)).numbers", "1500)).numbers"))
    with pytest.raises(ConfigError, match=r"env\.dialect=.*1500 is outside the screen"):
        open_dialect(f"{file}:Lines")


def test_an_unknown_argument_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"the dialect gui-owl rejects env\.dialect_kwargs="):
        open_dialect("gui-owl", {"colour": 1})
    with pytest.raises(ConfigError, match="outside must be one of refuse, clamp, got 'nowhere'"):
        open_dialect("gui-owl", {"outside": "nowhere"})
