"""An action dialect of your own: a command on the last line, in thousandths of the screen.

Check it: agentrl check dialect examples/extend/dialect.py:Lines
Use it:   env.dialect: examples/extend/dialect.py:Lines
"""

import json
import re

from agentrl.actions.dialect import Dialect
from agentrl.actions.reply_values import CoordinateScale, typed_text
from agentrl.actions.screen_actions import Done, Swipe, Tap, Type
from agentrl.errors import ActionError

FORMS = {Tap: "Click X Y", Swipe: "Move X1 Y1 X2 Y2", Type: 'Write "TEXT"', Done: "Finish"}
COMMAND = re.compile(r'^(Click|Move|Write|Finish)((?: \d{1,4})*| "[^\n]*")$', re.MULTILINE)


class Lines(Dialect):
    """One command on the last line of a reply, after any reasoning."""

    says = tuple(FORMS)
    history = "window:3"

    def parse(self, reply, screen):
        found = list(COMMAND.finditer(reply))
        if len(found) != 1 or reply[found[0].end() :].strip():
            raise ActionError(f"the reply must end with one of {', '.join(FORMS.values())}")
        name, rest = found[0].groups()
        if name == "Write":
            return Type(typed_text(read_json(rest), "Write"))
        numbers = [float(number) for number in rest.split()]
        count = {"Click": 2, "Move": 4, "Finish": 0}[name]
        if len(numbers) != count:
            raise ActionError(f"{name} takes {count} numbers, not {rest.strip()!r}")
        scale = CoordinateScale(sides=(1000, 1000), clamp=self.clamp)
        points = zip(numbers[::2], numbers[1::2], strict=True)
        places = [place for point in points for place in scale.position(point, name)]
        return {"Click": Tap, "Move": Swipe, "Finish": Done}[name](*places)

    def spell(self, action, screen, thought=""):
        at = CoordinateScale(sides=(1000, 1000)).numbers
        match action:
            case Tap(x, y):
                line = " ".join(["Click", *map(str, at(x, y))])
            case Swipe(x1, y1, x2, y2):
                line = " ".join(["Move", *map(str, at(x1, y1) + at(x2, y2))])
            case Type(text):
                line = f"Write {json.dumps(text)}"
            case Done():
                line = "Finish"
            case _:
                raise ActionError(f"{action} cannot be said")
        return f"{thought}\n{line}" if thought else line

    def system(self, task, screen, accepts):
        forms = "\n".join(form for kind, form in FORMS.items() if kind in accepts)
        return f"{task}\nThe screen is 1000 wide and 1000 high. End with one of:\n{forms}"


def read_json(text):
    try:
        return json.loads(text)
    except ValueError:
        raise ActionError(f"{text.strip()!r} is not a text in quotes") from None
