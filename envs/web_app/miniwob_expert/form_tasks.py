"""Tasks with lists, calendars, sliders, searches and whole forms."""

import re
from itertools import pairwise

from agentrl.actions.screen_actions import Action, Drag, Tap
from agentrl.envs.web_app.miniwob_expert.page import PAUSE, Element, Page

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip
_LEAST_DRAG_PX = 12
"""Shorter drags may be taken for taps, in pixels of the page."""
_SLIDER_STARTS, _SLIDER_LENGTHS = (-100, 0, 10, 100), (5, 10, 50, 100)
"""Ranges of sliders in `use-slider`, as the page shows the current value alone."""


def one_of_list(page: Page) -> Action:
    """Choose an entry of a drop-down list."""
    (name,) = page.match("Select (.*) from the list")
    choice = page.get("select")
    if choice["value"] == name:
        return page.submit()
    return page.tap(page.find("option", text=name) or choice)


def some_of_list(page: Page) -> Action:
    """Select entries of a list that scrolls."""
    names = page.match("Select (.*) from the scroll list")[0].split(", ")
    for option in page.all("option"):
        if option["checked"] != (option["text"] in names):
            return page.tap(option)
    return page.submit()


def calendar(page: Page) -> Action:
    """Choose a date in a calendar."""
    month, day, year = page.match(r"(\d+)/(\d+)/(\d+)")
    return _choose_date(page, month, day, year) or page.submit()


def flight(page: Page) -> Action:
    """Search for flights, and book the cheapest or shortest."""
    best, start, goal, month, day, year = page.match(
        r"the (\w+) one-way flight from: (.*) to: (.*) on (\d+)/(\d+)/(\d+)"
    )
    if page.find(of="flight-header"):
        return page.tap(_best_flight(page, best))
    return (
        _choose_airport(page, page.get("input", name="flight-from"), start)
        or _choose_airport(page, page.get("input", name="flight-to"), goal)
        or _choose_date(page, month, day, year)
        or page.tap(page.get("button", name="search"))
    )


def completed_text(page: Page) -> Action:
    """Enter the start of a word, and choose one of the suggestions."""
    start, *rest = page.quoted
    end = rest[0] if rest else ""
    field = page.get("input")

    def fits(text: str) -> bool:
        return text.startswith(start) and text.endswith(end) and text != start

    suggestions = [one for one in page.all("div", of="ui-menu-item-wrapper") if fits(one["text"])]
    if suggestions:
        return page.tap(suggestions[0])
    if fits(field["value"]):
        return page.submit()
    return page.fill(field, start) or PAUSE


def search_result(page: Page) -> Action:
    """Search for a name, and open the result with a number."""
    (number,) = page.match(r"the (\d+)\w\w search result")
    goal, place = divmod(int(number) - 1, 3)
    results = page.all("a", of="search-title")
    if not results:
        field = page.get("input", name="search-text")
        return page.fill(field, page.quoted[0]) or page.tap(page.get("button", name="search"))
    items = [(item, link) for item, link in pairwise(page.elements) if item["tag"] == "li"]
    item, link = next(pair for pair in items if pair[1]["text"] == str(goal + 1))
    return page.tap(results[place] if "active" in item["classes"] else link)


def movie_form(page: Page) -> Action:
    """Fill in a form whose fields change their places."""
    genre, name, year = page.match(r"Search for (.*) movies directed by (.*) from year (\d+)")
    fields = page.all("input")
    labels = [one for one in page.elements if re.search("Genre|Director|Year|Date", one["text"])]
    order = [
        genre if "Genre" in one["text"] else name if "Director" in one["text"] else year
        for one in labels
    ]
    for field, text in zip(fields, order, strict=True):
        if step := page.fill(field, text):
            return step
    return page.submit()


def spinner(page: Page) -> Action:
    """Tap the arrows of a spinner until it shows a number."""
    (number,) = page.match(r"Select (-?\d+)")
    left = int(number) - int(page.get("input")["value"] or 0)
    if not left:
        return page.submit()
    return page.tap(page.get(of="ui-spinner-up" if left > 0 else "ui-spinner-down"))


def slider(page: Page) -> Action:
    """Drag a slider's handle until it shows a number."""
    goal, value = int(page.match(r"Select (-?\d+)")[0]), int(page.get(name="val")["text"])
    if goal == value:
        return page.submit()
    track, handle = page.get(name="slider"), page.get(of="ui-slider-handle")
    is_flat = "ui-slider-horizontal" in track["classes"]
    axis, size, way = ("x", "width", 1) if is_flat else ("y", "height", -1)
    length = way * track[size]
    start = track[axis] - length / 2
    share = (handle[axis] - start) / length
    low, span = min(
        ((low, span) for low in _SLIDER_STARTS for span in _SLIDER_LENGTHS
         if low <= goal <= low + span),
        key=lambda found: abs(found[0] + share * found[1] - value) / found[1],
    )  # fmt: skip
    target = start + length * (goal - low) / span
    if abs(target - handle[axis]) < _LEAST_DRAG_PX * page.pixel[0 if is_flat else 1]:
        far = start + length * (0.1 if share > 0.5 else 0.9)
        return Tap(**{"x": track["x"], "y": track["y"], axis: far})
    end = {"x": track["x"], "y": track["y"], axis: target}
    return Drag(handle["x"], handle["y"], end["x"], end["y"])


def _choose_date(page: Page, month: str, day: str, year: str) -> Action | None:
    field = page.get("input", name="datepicker")
    if field["value"] == f"{month}/{day}/{year}":
        return None
    shown = page.find(of="ui-datepicker-month")
    if shown is None:
        return page.tap(field)
    number = _MONTHS.index(shown["text"]) + 1
    if number != int(month):
        way = "prev" if number > int(month) else "next"
        return page.tap(page.get(of=f"ui-datepicker-{way}"))
    return page.tap(page.get("a", text=str(int(day)), of="ui-state-default"))


def _choose_airport(page: Page, field: Element, name: str) -> Action | None:
    """Enter a city or an airport's code, and choose it among the suggestions."""

    def fits(text: str) -> bool:
        return text.endswith(f"({name})") or text.startswith(f"{name} (")

    if fits(field["value"]):
        return None
    suggestions = [one for one in page.all("div", of="ui-menu-item-wrapper") if fits(one["text"])]
    if suggestions:
        return page.tap(suggestions[0])
    return page.fill(field, name) or PAUSE


def _best_flight(page: Page, best: str) -> Element:
    buttons = page.all("button", of="flight-price")
    if best == "cheapest":
        return min(buttons, key=lambda one: int(one["text"].rpartition("$")[2]))
    times = [re.findall(r"\d+", one["text"]) for one in page.all(of="time-duration")]
    minutes = [60 * int(hours) + int(rest) for hours, rest in times]
    return buttons[minutes.index(min(minutes))]
