"""Flip on a phone: its app, environment and translator."""

from collections.abc import Mapping
from typing import Any

from agentrl.envs.android.minigames.flip.drawing import render
from agentrl.envs.android.minigames.flip.rules import MISS, MOST, PAIR, Flip, FlipLevel
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_classes import game_classes


def _exit_reward(facts: Mapping[str, Any]) -> float:
    """Charge a miss for every two cards that may still be turned, but at least one miss."""
    misses: int = facts["limit"] // 2 - facts["turned"] // 2
    return min(misses * MISS / PAIR, -1.0)


GAME = PhoneGame(
    package="org.agentrl.flip",
    rules=Flip,
    draw=render,
    level=FlipLevel,
    calls={"flip(card)": MOST},
    prompt=(
        "You play a game of memory on a phone. A tap turns a card. Two equal ones stay; two that "
        "differ are turned back by your next tap on a card that lies face down. Find all pairs "
        "with few turns. Cards are counted from 0 in reading order."
    ),
    reward_fact="worth",
    exit_reward=_exit_reward,
    metrics=("score", "success"),
)
FlipApp, FlipEnv, FlipTranslator = game_classes("Flip", GAME, __name__)
