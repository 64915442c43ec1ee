"""Tasks that are solved by taps: buttons, boxes, tabs, menus, lists and shapes."""

import re
from collections.abc import Callable

from agentrl.actions.screen_actions import Action, Swipe
from agentrl.envs.web_app.miniwob_expert.page import PAUSE, Element, Page

_ORDINALS = ("1st", "2nd", "3rd")
_SHAPES = {"rect": "rectangle", "circle": "circle", "polygon": "triangle"}
_LARGE_PX = 15
"""Height from which a shape or a letter counts as large, in pixels of the page."""
_NUDGE = 0.04
"""A swipe that is just long enough not to be a tap."""
_SIMILAR = """
big large huge enormous gigantic / small tiny little mini petite / red scarlet crimson vermillion
happy cheerful joyful gleeful delighted / sad unhappy sorrowful miserable tragic
angry mad furious irritated / evil wicked immoral sinful corrupt depraved
wrong incorrect mistaken erroneous / real genuine actual / strange odd peculiar unusual weird
stop cease halt end finish / scared terrified panicked fearful frightened afraid
quiet calm peaceful serene mild / old aged archaic / love like adore favor
kill murder assassinate / keep retain preserve sustain maintain / hide conceal camouflage
hate despise loathe detest dislike / funny humorous amusing comical laughable
fat fleshy plump chubby / stupid dumb dull unwise / delicious savory delectable appetizing
cut slice carve chop / brave courageous fearless / begin start initiate launch
answer reply response / television televisions TV TVs / house home houses homes
fire flame fires flames / pig pork swine / rabbit rabbits bunny bunnies
car cars automobile automobiles vehicle vehicles / water
"""
"""Groups of similar words, which the page's `click-checkboxes-soft` draws from."""
_MEANINGS = {
    word: group
    for group, words in enumerate(re.split(r"[/\n]", _SIMILAR.strip()))
    for word in words.split()
}


def only(tag: str) -> Callable[[Page], Action]:
    """Return a player that taps the only element with a tag."""
    return lambda page: page.tap(page.get(tag))


def quoted(*tags: str) -> Callable[[Page], Action]:
    """Return a player that taps what the instruction quotes."""
    return lambda page: page.tap(page.get(*tags, text=page.quoted[0]))


def in_sequence(page: Page) -> Action:
    """Tap all buttons, in order."""
    return page.tap(next(one for one in page.all("button") if not one["tapped"]))


def color(page: Page) -> Action:
    """Tap the box with a color."""
    (name,) = page.match("Click on the (.*) colored box")
    return page.tap(_labeled(page, name))


def in_dialog(page: Page) -> Action:
    """Close a dialog, or tap its button."""
    if page.quoted[0] == "x":
        return page.tap(page.get(of="ui-dialog-titlebar-close"))
    return page.tap(page.get("button", text=page.quoted[0]))


def tab(page: Page) -> Action:
    """Tap a tab by its number."""
    (number,) = page.match(r"#(\d+)")
    return page.tap(page.get("a", text=f"Tab #{number}"))


def widget(page: Page) -> Action:
    """Tap a widget of a kind."""
    return page.tap(_labeled(page, page.quoted[0]))


def textbox(page: Page) -> Action:
    """Tap a text field by its position."""
    number = next(i for i, word in enumerate(_ORDINALS) if word in page.instruction)
    return page.tap(page.all("input")[number])


def grid_point(page: Page) -> Action:
    """Tap a point of a grid by its coordinates."""
    (point,) = page.match(r"(\(.*?\))")
    return page.tap(page.get(name=point))


def tree_file(page: Page) -> Action:
    """Tap a file, opening folders until it is seen."""
    folders = [one for one in page.all("span", of="folder") if not one["tapped"]]
    return page.tap(page.find("span", text=page.quoted[0]) or folders[0])


def checkboxes(page: Page) -> Action:
    """Check the boxes with some names, or with words similar to them."""
    similar, names = page.match(r"Select (words similar to )?(.*) and click Submit")
    wanted = {_MEANINGS[name] if similar else name for name in names.split(", ")}
    for one in page.all("label"):
        meaning = _MEANINGS[one["text"]] if similar else one["text"]
        if (meaning in wanted) != one["checked"]:
            return page.tap(one)
    return page.submit()


def section(page: Page) -> Action:
    """Expand the only section."""
    header = page.get("h3")
    is_open = "ui-accordion-header-active" in header["classes"]
    return page.submit() if is_open else page.tap(header)


def hidden_link(*tags: str) -> Callable[[Page], Action]:
    """Return a player that opens sections or tabs, whose headers have a tag, to find a link."""

    def play(page: Page) -> Action:
        link = page.find("span", text=page.quoted[0], of="alink")
        return page.tap(link or next(one for one in page.all(*tags) if not one["tapped"]))

    return play


def menu(page: Page) -> Action:
    """Open submenus with short swipes, as a tap would select them, and tap the last item."""
    *parents, leaf = page.match("Select (.*)")[0].split(">")
    if item := page.find("div", text=leaf, of="ui-menu-item-wrapper"):
        return page.tap(item)
    for parent in reversed(parents):
        if item := page.find("div", text=parent, of="ui-menu-item-wrapper"):
            return Swipe(item["x"], item["y"], item["x"] + _NUDGE * 2, item["y"])
    raise AssertionError(f"no item of {page.instruction!r}")


def pie(page: Page) -> Action:
    """Open the pie menu, and tap a slice."""
    label, closed = page.find("tspan", text=page.quoted[0]), page.find("tspan", text="+")
    if closed:
        return page.tap(closed)
    return page.tap(label) if label and label["touchable"] else PAUSE


def shades(page: Page) -> Action:
    """Select all shades of a color."""
    (name,) = page.match(r"shades of (\w+)")
    left = [
        one for one in page.all("span") if one["label"] == name and "selected" not in one["classes"]
    ]
    return page.tap(left[0]) if left else page.submit()


def shape(page: Page) -> Action:
    """Tap a shape that fits a description."""
    (said,) = page.match("Click on a (.*)")
    return page.tap(next(one for one in page.elements if _fits(page, one, said)))


def shape_count(page: Page) -> Action:
    """Tap the number of shapes that fit a description."""
    (said,) = page.match(r"How many (.*)s are there")
    count = sum(_fits(page, one, said) for one in page.elements)
    return page.tap(page.get("button", text=str(count)))


def shape_kind(page: Page) -> Action:
    """Tap the name of the only figure's kind."""
    figure = page.get("text", *_SHAPES)
    return page.tap(_labeled(page, _SHAPES.get(figure["tag"]) or _kind(figure)))


def _labeled(page: Page, label: str) -> Element:
    return next(one for one in page.elements if one["label"] == label)


def _kind(figure: Element) -> str:
    if figure["tag"] in _SHAPES:
        return "shape"
    return "digit" if figure["text"].isdigit() else "letter"


def _fits(page: Page, figure: Element, description: str) -> bool:
    """Return whether a figure is, for example, a `large red letter`, or a `small T`."""
    if figure["tag"] not in ("text", *_SHAPES):
        return False
    size = "large" if figure["height"] > _LARGE_PX * page.pixel[1] else "small"
    what = {"item", _kind(figure), _SHAPES.get(figure["tag"], figure["text"])}
    *details, kind = description.split(" ")
    return kind in what and set(details) <= {size, figure["fill"]}
