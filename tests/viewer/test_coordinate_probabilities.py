import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.types import Turn
from agentrl.viewer.episodes.coordinate_probabilities import coordinates_of
from tests.replay.episodes import turn

Position = Mapping[str, float]
"""The probability of each token."""
weights = st.lists(st.floats(0.01, 1), min_size=10, max_size=10)


def touched(action: list[float], *positions: tuple[str, Position]) -> tuple[Turn, dict[int, str]]:
    """A turn of these sampled tokens, each with the probabilities at its position."""
    ids: dict[str, int] = {}
    for sampled, position in positions:
        for token in (sampled, *position):
            ids.setdefault(token, len(ids))
    made = turn(reply_ids=tuple(ids[sampled] for sampled, _ in positions), action=action)
    logprobs = tuple(math.log(position[sampled]) for sampled, position in positions)
    top = tuple(
        tuple((ids[token], math.log(p)) for token, p in position.items())
        for _, position in positions
    )
    made = replace(made, reply_logprobs=logprobs, reply_top_logprobs=top)
    return made, {id: token for token, id in ids.items()}


def only(token: str) -> tuple[str, Position]:
    return token, {token: 1.0}


@given(weights, weights, st.integers(0, 9), st.integers(0, 9))
def test_masses_are_those_of_all_possible_numbers(
    tens: list[float], ones: list[float], ten: int, one: int
) -> None:
    """Compared with a model of two independent digits, number by number."""
    first = {str(digit): value / sum(tens) for digit, value in enumerate(tens)}
    second = {str(digit): value / sum(ones) for digit, value in enumerate(ones)}
    played, names = touched(
        [(10 * ten + one) / 100, 0.5],
        only("tap("), only("0"), only("."), (str(ten), first), (str(one), second),
        only(", "), only("0.5"), only(")"),
    )  # fmt: skip
    x, y = coordinates_of(played, names.__getitem__)
    exact = {a + b: first[a] * second[b] for a, b in product(first, second)}
    for part in x["parts"]:
        inside = [
            p for digits, p in exact.items() if part["low"] < int(digits) / 100 < part["high"]
        ]
        if part["low"] > 0:  # 0.00 lies at the edge
            assert part["mass"] == pytest.approx(sum(inside))
    assert x["covered"] == pytest.approx(1)
    assert (y["covered"], y["parts"][0]["text"]) == (pytest.approx(1), "0.5")


def test_what_the_alternatives_leave_open_is_not_covered() -> None:
    x, y = coordinates_of(
        *read(
            touched(
                [0.25, 0.5],
                ("tap(", {"tap(": 0.9, "swipe(": 0.1}),
                ("0.25", {"0.25": 0.5, "0.75": 0.2, "1.5": 0.1, "left": 0.1}),
                (", ", {", ": 0.8, "5": 0.1}),
                only("0.50"),
            )
        )
    )
    # Given `tap(`; "left" is no position, and 1.5 is beside the screen.
    assert [(part["text"], round(part["mass"], 6)) for part in x["parts"]] == [
        ("0.25", 0.4), ("0.75", 0.2), ("0.255", 0.05),
    ]  # fmt: skip
    assert x["covered"] == pytest.approx(0.65)
    assert y["covered"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("action", "numbers", "texts"),
    [
        ([0.412, 0.5], ("412", "500"), ["412", "500"]),  # of 1000
        ([0.25, 0.5], ("25", "50"), ["25", "50"]),  # percent
        ([0.25, 0.5], ("180", "640"), ["180", "640"]),  # pixels of 720x1280
        ([0.1, 0.2, 0.3, 0.4], ("0.1", "0.2", "0.3", "0.4"), ["0.1", "0.2", "0.3", "0.4"]),
        ([0.4, 0.6], ("3", "5"), []),  # other numbers
        ([0.4, 0.6], ("3",), []),
    ],
)
def test_coordinates_are_found_on_any_scale(
    action: list[float], numbers: tuple[str, ...], texts: list[str]
) -> None:
    tokens = [only(token) for number in numbers for token in (*number, ",")]
    found = coordinates_of(*read(touched(action, only("round 7: "), *tokens)))
    assert [one["parts"][0]["text"] for one in found] == texts
    for one, at in zip(found, action, strict=False):
        (part,) = one["parts"]
        assert part["low"] < at < part["high"]


def read(made: tuple[Turn, dict[int, str]]) -> tuple[Turn, Callable[[int], str]]:
    played, names = made
    return played, names.__getitem__
