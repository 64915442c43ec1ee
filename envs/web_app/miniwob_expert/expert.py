"""The scripted player of MiniWoB++ and the tasks it knows."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.players.random_player import USUAL_SCREEN
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.screen_actions import Action
from agentrl.actions.space_formats import action_format_for
from agentrl.envs.web_app.miniwob_expert import (
    click_tasks,
    form_tasks,
    message_tasks,
    text_tasks,
)
from agentrl.envs.web_app.miniwob_expert.page import Page
from agentrl.envs.web_app.miniwob_expert.tic_tac_toe import tic_tac_toe
from agentrl.errors import ConfigError

PLAYERS: Mapping[str, Callable[[Page], Action]] = {
    "book-flight": form_tasks.flight,
    "choose-date": form_tasks.calendar,
    "choose-list": form_tasks.one_of_list,
    "click-button": click_tasks.quoted("button"),
    "click-button-sequence": click_tasks.in_sequence,
    "click-checkboxes": click_tasks.checkboxes,
    "click-checkboxes-large": click_tasks.checkboxes,
    "click-checkboxes-soft": click_tasks.checkboxes,
    "click-checkboxes-transfer": click_tasks.checkboxes,
    "click-collapsible": click_tasks.section,
    "click-collapsible-2": click_tasks.hidden_link("h3"),
    "click-color": click_tasks.color,
    "click-dialog": click_tasks.in_dialog,
    "click-dialog-2": click_tasks.in_dialog,
    "click-link": click_tasks.quoted("span", "a"),
    "click-menu": click_tasks.menu,
    "click-option": click_tasks.checkboxes,
    "click-pie": click_tasks.pie,
    "click-scroll-list": form_tasks.some_of_list,
    "click-shades": click_tasks.shades,
    "click-shape": click_tasks.shape,
    "click-tab": click_tasks.tab,
    "click-tab-2": click_tasks.hidden_link("a"),
    "click-tab-2-hard": click_tasks.hidden_link("a"),
    "click-test": click_tasks.only("button"),
    "click-test-2": click_tasks.only("button"),
    "click-widget": click_tasks.widget,
    "copy-paste": text_tasks.copied_text,
    "copy-paste-2": text_tasks.copied_text,
    "count-shape": click_tasks.shape_count,
    "email-inbox": message_tasks.inbox,
    "email-inbox-forward-nl": message_tasks.inbox,
    "email-inbox-forward-nl-turk": message_tasks.inbox,
    "email-inbox-nl-turk": message_tasks.inbox,
    "enter-date": text_tasks.date,
    "enter-password": text_tasks.same_text_everywhere,
    "enter-text": text_tasks.one_text,
    "enter-text-dynamic": text_tasks.one_text,
    "enter-time": text_tasks.time,
    "find-word": text_tasks.word,
    "focus-text": click_tasks.only("input"),
    "focus-text-2": click_tasks.textbox,
    "grid-coordinate": click_tasks.grid_point,
    "guess-number": text_tasks.guessed_number,
    "identify-shape": click_tasks.shape_kind,
    "login-user": text_tasks.login,
    "login-user-popup": text_tasks.login,
    "multi-layouts": form_tasks.movie_form,
    "multi-orderings": form_tasks.movie_form,
    "navigate-tree": click_tasks.tree_file,
    "read-table": text_tasks.table_value,
    "search-engine": form_tasks.search_result,
    "simple-algebra": text_tasks.algebra,
    "simple-arithmetic": text_tasks.arithmetic,
    "social-media": message_tasks.post_button,
    "social-media-all": message_tasks.post_buttons,
    "social-media-some": message_tasks.post_buttons,
    "terminal": text_tasks.terminal,
    "text-transform": text_tasks.distorted_text,
    "tic-tac-toe": tic_tac_toe,
    "unicode-test": click_tasks.quoted("button"),
    "use-autocomplete": form_tasks.completed_text,
    "use-slider": form_tasks.slider,
    "use-spinner": form_tasks.spinner,
}


class MiniWoBExpert:
    """Plays the usual tasks, from what a page's elements say.

    Args:
        style: see `WebAppTranslator`.
    """

    def __init__(self, style: str = "tag") -> None:
        self._format = action_format_for(ScreenActionSpace(), style=style)
        self.dialect: Dialect | None = None
        """How actions are written; None in the translator's own format."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the next action without reasoning.

        Raises:
            ConfigError: it does not know the task.
        """
        play = PLAYERS.get(info["task"])
        if play is None:
            raise ConfigError(
                f"the player 'expert' does not know the task {info['task']}; it knows "
                f"{', '.join(PLAYERS)}"
            )
        # Only now and then: an action may need no effect that can be seen.
        is_stuck = not info["changed"] and rng.random() < 0.5
        page = Page(instruction=info["instruction"], elements=info["elements"], is_stuck=is_stuck)
        return self._written(play(page), info)

    def _written(self, action: Action, info: Mapping[str, Any]) -> str:
        if self.dialect is None:
            return self._format.format(action)
        screen = self.dialect.screen(info.get("screen_size", USUAL_SCREEN))
        return self.dialect.spell(action, screen)
