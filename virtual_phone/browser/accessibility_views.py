"""A page's accessibility tree as views, as Chrome reports it to `uiautomator`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from playwright.async_api import CDPSession

from virtual_phone.apps.app import View

_KINDS = {
    "button": "android.widget.Button", "checkbox": "android.widget.CheckBox",
    "combobox": "android.widget.Spinner", "image": "android.widget.Image",
    "list": "android.widget.ListView", "progressbar": "android.widget.ProgressBar",
    "radio": "android.widget.RadioButton", "searchbox": "android.widget.EditText",
    "slider": "android.widget.SeekBar", "spinbutton": "android.widget.EditText",
    "StaticText": "android.widget.TextView", "switch": "android.widget.Switch",
    "textbox": "android.widget.EditText", "RootWebArea": "android.webkit.WebView",
}  # fmt: skip
_CLICKABLE = frozenset((
    "button", "checkbox", "combobox", "link", "menuitem", "option", "radio", "searchbox", "slider",
    "spinbutton", "switch", "tab", "textbox",
))  # fmt: skip
_COUNT = "document.getElementsByTagName('*').length"
_MAX_NODES = 20_000
_MAX_DEPTH = 100
"""As deep as `uiautomator` writes."""

Bounds = tuple[float, float, float, float]


async def read(session: CDPSession, size: tuple[float, float], scale: float) -> Sequence[View]:
    """Return the views of the page's main document that can be seen; none for a huge page.

    Args:
        session: session of the page.
        size: width and height of the page's area, in physical pixels.
        scale: physical pixels per CSS pixel of a page that is not zoomed, as in snapshots.
    """
    counted = await session.send("Runtime.evaluate", {"expression": _COUNT})
    if counted["result"].get("value", 0) > _MAX_NODES:
        return []
    tree = await session.send("Accessibility.getFullAXTree")
    metrics = await session.send("Page.getLayoutMetrics")
    snapshot = await session.send("DOMSnapshot.captureSnapshot", {"computedStyles": []})
    nodes = {node["nodeId"]: node for node in tree["nodes"]}
    root = next((node for node in nodes.values() if "parentId" not in node), None)
    if root is None:
        return []
    shown = metrics["cssVisualViewport"]
    (width, height), zoom = size, shown["scale"]
    visible = (shown["pageX"] * scale, shown["pageY"] * scale, width / zoom, height / zoom)
    return list(_views(root, nodes, _bounds(snapshot["documents"][0], visible), 0))


def _bounds(document: Mapping[str, Any], visible: Bounds) -> dict[int, Bounds]:
    """Return the visible bounds of a document's nodes by backend id, in fractions of the area.

    Args:
        document: document of a snapshot.
        visible: left, top, width and height of the visible part, in the snapshot's pixels.
    """
    ids, layout = document["nodes"]["backendNodeId"], document["layout"]
    left, top, width, height = visible
    found = dict[int, Bounds]()
    for index, (x, y, w, h) in zip(layout["nodeIndex"], layout["bounds"], strict=True):
        x1, y1 = max((x - left) / width, 0.0), max((y - top) / height, 0.0)
        x2, y2 = min((x - left + w) / width, 1.0), min((y - top + h) / height, 1.0)
        if x1 < x2 and y1 < y2:
            found.setdefault(ids[index], (x1, y1, x2, y2))
    return found


def _views(
    node: Mapping[str, Any], nodes: Mapping[str, Any], bounds: Mapping[int, Bounds], depth: int
) -> Iterator[View]:
    """Yield a node's view; those of its children instead if it is only a part of the layout."""
    children = [
        view
        for child in (node.get("childIds", ()) if depth < _MAX_DEPTH else ())
        if child in nodes
        for view in _views(nodes[child], nodes, bounds, depth + 1)
    ]
    place, role = bounds.get(node.get("backendDOMNodeId", -1)), node.get("role", {}).get("value")
    if node.get("ignored") or place is None or role in ("generic", "InlineTextBox", "none"):
        yield from children
        return
    named = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
    checked = named.get("checked")
    value = str(node.get("value", {}).get("value", ""))
    name = str(node.get("name", {}).get("value", ""))
    is_text = len(children) == 1 and children[0].text == name
    yield View(
        bounds=place,
        text=value or name,
        description=name if value else "",
        kind=_KINDS.get(role, "android.view.View"),
        is_clickable=role in _CLICKABLE,
        is_enabled=not named.get("disabled"),
        is_checked=None if checked is None else checked in (True, "true"),
        children=() if is_text else children,
    )
