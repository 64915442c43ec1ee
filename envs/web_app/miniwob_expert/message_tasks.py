"""Tasks with an inbox, and with posts of social media."""

import re

from agentrl.actions.screen_actions import Action
from agentrl.envs.web_app.miniwob_expert.page import Element, Page

_NAME = r"([A-Z][\w-]*?)"
_SOURCES = (
    rf"\b(?:[Ff]rom|[Bb]y) {_NAME}(?:'s)?\b",
    rf"(?<!to )\b{_NAME}'s\b(?! inbox)",
    rf"\b{_NAME}s? (?:sent|wrote|e-?mail|mail|wants his)",
)
"""Where an instruction names the sender of an email, the most reliable first."""
_NOT_NAMES = """
Alexa Answer Ask Automatically Can Copy Could Create Delete Email FOrward Find First Flag For
Forward Foward Get Give Go Hi Highlight I If Important In Inbox It Jend Just Let Locate Look Make
Mark May Navigate Open Please Primary Pull Put Remind Replay Reply Resend Respond Save Say Search
Select Send Set Simply Siri Star Tag Take Tell Text Thanks The There Throw To Trash Tuesday WiIl
Will You
"""
"""Words with a capital in instructions that do not name a person."""


def inbox(page: Page) -> Action:
    """Delete, star, answer or forward the email of a sender."""
    sender, other = people(page.instruction)
    if field := page.find("textarea", name="reply-text"):
        return page.fill(field, page.quoted[-1]) or page.tap(page.get(name="send-reply"))
    if field := page.find("input", of="forward-sender"):
        return page.fill(field, other) or page.tap(page.get(name="send-forward"))
    action = _email_action(page)
    if page.find(name="email"):
        return page.tap(
            page.get(of=f"email-{action}" if action in ("reply", "forward") else action)
        )
    start = page.elements.index(page.get(of="email-sender", text=sender))
    if action in ("reply", "forward"):
        return page.tap(page.elements[start])
    return page.tap(next(one for one in page.elements[start:] if action in one["classes"]))


def post_button(page: Page) -> Action:
    """Tap a button, or an entry of the menu, of a user's post."""
    user, button = page.match(r'For the user (\S+), click on the "(.*)" button')
    post = _posts(page, user)[0]
    entry = next(
        (one for one in post if one["tag"] == "li" and one["text"].startswith(button)), None
    )
    direct = next((one for one in post if button.lower() in one["classes"]), None)
    return page.tap(entry or direct or next(one for one in post if "more" in one["classes"]))


def post_buttons(page: Page) -> Action:
    """Tap a button of some or all posts of a user, and submit."""
    button, amount, user = page.match(r'the "(.*)" button on (.*) posts? by (\S+) and')
    kind = button.lower()
    found = [next(one for one in post if kind in one["classes"]) for post in _posts(page, user)]
    wanted = found if amount == "all" else found[: int(amount)]
    left = [one for one in wanted if "active" not in one["classes"]]
    return page.tap(left[0]) if left else page.submit()


def _email_action(page: Page) -> str:
    said = page.instruction.lower()
    if page.quoted:
        return "reply"
    if re.search("delet|trash|rid of|throw", said):
        return "trash"
    return "star" if re.search("important|star", said) else "forward"


def people(instruction: str) -> tuple[str, str]:
    """Return who has sent the email, and the other person, to whom to forward it."""
    said = re.sub('".*"', "", instruction)
    words = re.findall(r"[A-Z][\w-]*", re.sub(r"'s\b", "", said))
    names = [word for word in dict.fromkeys(words) if word not in _NOT_NAMES.split()]
    named = [name for where in _SOURCES for name in re.findall(where, said) if name in names]
    sender = (named or names)[0]
    return sender, next((name for name in names if name != sender), "")


def _posts(page: Page, user: str) -> list[list[Element]]:
    """Return the elements of each post of a user, without its header."""
    posts: list[list[Element]] = []
    names: list[str] = []
    for one in page.elements:
        if "username" in one["classes"]:
            posts.append([])
            names.append(one["text"])
        elif posts:
            posts[-1].append(one)
    return [post for name, post in zip(names, posts, strict=True) if name == user]
