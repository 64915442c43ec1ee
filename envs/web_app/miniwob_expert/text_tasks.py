"""Tasks that are solved by typing into fields."""

import re

from agentrl.actions.screen_actions import Action, Key, Tap, Type
from agentrl.envs.web_app.miniwob_expert.page import Element, Page

_POSITIONS = {"1st": 0, "2nd": 1, "3rd": 2}
_FIRST_GUESS = 5


def one_text(page: Page) -> Action:
    """Enter what the instruction quotes."""
    return _answer(page, page.quoted[0])


def same_text_everywhere(page: Page) -> Action:
    """Enter what the instruction quotes into every field."""
    return (
        next(
            (step for field in page.all("input") if (step := page.fill(field, page.quoted[0]))),
            None,
        )
        or page.submit()
    )


def login(page: Page) -> Action:
    """Enter a name and a password, closing the popup that may come up."""
    if cancel := page.find("button", name="popup-cancel"):
        return page.tap(cancel)
    name, password = page.quoted
    return (
        page.fill(page.get("input", name="username"), name)
        or page.fill(page.get("input", name="password"), password)
        or page.tap(page.get("button"))
    )


def copied_text(page: Page) -> Action:
    """Enter what one of the text areas says."""
    found = re.search(r"(\d\w\w) text area", page.instruction)
    areas = page.all("textarea")
    return _answer(page, areas[_POSITIONS[found[1]] if found else 0]["value"])


def distorted_text(page: Page) -> Action:
    """Enter the letters that are drawn."""
    return _answer(page, "".join(one["text"] for one in page.all("span")))


def date(page: Page) -> Action:
    """Enter a date into the parts of a date field."""
    month, day, year = page.match(r"(\d+)/(\d+)/(\d+)")
    return _parts(page, f"{year}-{month}-{day}", month + day + year)


def time(page: Page) -> Action:
    """Enter a time into the parts of a time field."""
    hour, minute, half = page.match(r"(\d+):(\d+)\s*(AM|PM)")
    value = f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}"
    return _parts(page, value, f"{int(hour):02}{minute}{half}")


def word(page: Page) -> Action:
    """Enter a word of a paragraph by its position."""
    (number,) = page.match(r"(\d+)\w\w word")
    words = page.get("p")["text"].split()
    return _answer(page, re.sub("[^a-zA-Z]", "", words[int(number) - 1]))


def guessed_number(page: Page) -> Action:
    """Guess a number, from the middle towards it."""
    guess = _FIRST_GUESS
    for name, way in (("lower", -1), ("higher", 1)):
        if hint := page.find(name=name):
            after = page.elements[page.elements.index(hint) + 1]
            guess = int(after["text"]) + way
    return _answer(page, str(guess))


def table_value(page: Page) -> Action:
    """Enter the value of a table's row."""
    (key,) = page.match("value of (.*) into")
    cells = [one["text"] for one in page.all("td")]
    return _answer(page, cells[cells.index(key) + 1])


def arithmetic(page: Page) -> Action:
    """Enter the result of an operation with two digits."""
    left, sign, right = page.get(name="math-problem")["text"].removesuffix("=").split()
    numbers = int(left), int(right)
    results = {"+": sum(numbers), "-": numbers[0] - numbers[1], "x": numbers[0] * numbers[1]}
    return _answer(page, str(results[sign]))


def algebra(page: Page) -> Action:
    """Enter the solution of an equation with x."""
    left, sign, right, _, total = page.get(name="math-problem")["text"].split()
    known = int(left if right == "x" else right)
    if sign == "+":
        x = int(total) - known
    else:
        x = int(total) + known if left == "x" else known - int(total)
    return _answer(page, str(x))


def terminal(page: Page) -> Action:
    """List the files, and delete the one with an extension."""
    found = re.search(r"extension \.(\S+)", page.instruction)
    lines = [one["text"] for one in page.all(of="output")]
    shown = [one["text"] for one in page.all(of="command")]
    listed = next((lines[i + 1] for i, line in enumerate(lines) if "Last login" in line and
                   i + 1 < len(lines)), None)  # fmt: skip
    command = "ls"
    if listed is not None:
        names = listed.split()
        command = "rm " + next(
            name for name in names
            if (name.endswith("." + found[1]) if found else "." not in name)
        )  # fmt: skip
    if shown and shown[-1] == command:
        return Key("ENTER")
    target = page.find("input", name="terminal-target")
    if target is None or not target["focused"]:
        return page.tap(page.get(name="terminal"))
    return Type(command)


def _answer(page: Page, text: str) -> Action:
    """Enter a text into the only text field, and submit it."""
    return page.fill(page.get("input"), text) or page.submit()


def _parts(page: Page, value: str, keys: str) -> Action:
    """Enter the parts of a date or a time, the first of which is at the left."""
    field: Element = page.get("input")
    if field["value"] == value:
        return page.submit()
    if field["focused"]:
        return Type(keys)
    return Tap(field["x"] - 0.4 * field["width"], field["y"])
