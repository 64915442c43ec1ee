"""Checks that every action dialect must pass."""

from agentrl.actions.dialect import SCREENS, Dialect, Screen, check_positions
from agentrl.actions.screen_actions import (
    EXAMPLES,
    Done,
    Drag,
    PointTouch,
    ScreenAction,
    Swipe,
    Wait,
)
from agentrl.errors import ActionError, describe_error
from agentrl.text.formatting import quoted

_TOLERANCE = 0.01
_MALFORMED = (
    "",
    "no action at all",
    "<action></action>",
    "<tool_call>{}</tool_call>",
    "<tool_call>" + "[" * 5000,
    "Action: ",
    "Action: click(start_box='(1,'",
    "<answer>do(action=__import__('os').system('true'))</answer>",
    "Action: {}",
    "\x00\ud800",
)


def check_spelling_and_parsing_agree(target: type[Dialect]) -> None:
    """Each action that the dialect spells is parsed as the same action."""
    dialect = target()
    assert dialect.says, f"{target.__name__}.says is empty; list the types of its actions"
    for size in SCREENS:
        screen = dialect.screen(size)
        for action in _examples(dialect):
            for thought in ("", "The button is at the top."):
                _check_round_trip(dialect, action, screen, thought)


def check_positions_stay_on_the_screen(target: type[Dialect]) -> None:
    """A tap anywhere on a phone or tablet is spelled and parsed as the same place."""
    dialect = target()
    for size in SCREENS:
        for seen in (size, (size[0] // 3, size[1] // 3)):
            check_positions(dialect, Screen(size=size, seen=seen))


def check_malformed_replies_are_refused(target: type[Dialect]) -> None:
    """A reply that is not an action raises ActionError with a reason."""
    dialect = target()
    screen = dialect.screen(SCREENS[0])
    spelled = [dialect.spell(action, screen) for action in _examples(dialect)]
    # Neither half a reply nor a reply repeated is exactly one action.
    cut = [reply[: len(reply) // 2] for reply in spelled]
    twice = [f"{reply}\n{reply}" for reply in spelled]
    for reply in (*_MALFORMED, *cut, *twice):
        try:
            parsed = dialect.parse(reply, screen)
        except ActionError as error:
            if not str(error).strip():
                raise AssertionError(
                    f"{quoted(reply, 200)}: the ActionError gives no reason"
                ) from error
        except Exception as error:
            raise AssertionError(
                f"{quoted(reply, 200)} raises {describe_error(error)}; raise ActionError"
            ) from error
        else:
            raise AssertionError(
                f"{quoted(reply, 200)} is parsed as {parsed}; raise ActionError for a reply that "
                "is not exactly one action"
            )


def check_the_prompt_mentions_every_action(target: type[Dialect]) -> None:
    """The prompt says how to write each accepted action, and mentions no others."""
    dialect = target()
    screen = dialect.screen(SCREENS[0])
    full = _prompt(dialect, dialect.says)
    for action in _examples(dialect):
        others = tuple(kind for kind in dialect.says if kind is not type(action))
        assert len(_prompt(dialect, others)) < len(full), (
            f"the prompt does not change if {type(action).__name__} is not accepted: mention each "
            f"accepted action, as in {quoted(dialect.spell(action, screen), 200)}"
        )


def _prompt(dialect: Dialect, accepts: tuple[type[ScreenAction], ...]) -> str:
    screen = dialect.screen(SCREENS[0])
    opening = dialect.opening("Win the game.", screen, accepts, (), "<image>")
    prompt = dialect.system("Win the game.", screen, accepts) + opening
    assert "Win the game." in prompt, "neither the system nor the first message states the task"
    assert opening.count("<image>") == 1, f"the first message is {quoted(opening)}: one <image>"
    return prompt


def _examples(dialect: Dialect) -> list[ScreenAction]:
    return [action for action in EXAMPLES if isinstance(action, dialect.says)]


def _check_round_trip(dialect: Dialect, action: ScreenAction, screen: Screen, thought: str) -> None:
    reply = dialect.spell(action, screen, thought)
    try:
        parsed = dialect.parse(reply, screen)
    except ActionError as error:
        raise AssertionError(f"{action} is spelled {quoted(reply, 300)}: {error}") from error
    same = type(parsed) is type(action) and _is_equal(action, parsed)
    assert same, f"{action} is spelled {quoted(reply, 300)}, which is parsed as {parsed}"


def _is_equal(action: ScreenAction, parsed: ScreenAction) -> bool:
    """Compare two actions: swipes by direction, pauses by kind, ends by outcome."""
    match action, parsed:
        case (Swipe() | Drag(), Swipe() | Drag()):
            return _direction(action) == _direction(parsed)
        case (PointTouch(), PointTouch()):
            return max(abs(action.x - parsed.x), abs(action.y - parsed.y)) <= _TOLERANCE
        case (Done(), Done()):
            return action.failed == parsed.failed
        case (Wait(), _):
            return True
    return action == parsed


def _direction(action: Swipe | Drag) -> tuple[bool, bool]:
    across, down = action.x2 - action.x1, action.y2 - action.y1
    return abs(across) > abs(down), (across if abs(across) > abs(down) else down) > 0
