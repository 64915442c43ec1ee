"""The built-in environments; importing this package registers them."""

from collections.abc import Sequence

from agentrl.env_registry import register
from agentrl.package_links import refuse_bare_name

refuse_bare_name(__name__)


def _register(
    name: str,
    folder: str,
    env: str,
    translator: str,
    app: str | None = None,
    state_schema: str | None = None,
    own_players: Sequence[str] = (),
) -> None:
    """Register an environment with its three players, and its own of players that all have.

    Module names are relative to its folder.
    """
    register(
        f"{name}-v0",
        f"{folder}.{env}",
        translator=f"{folder}.{translator}",
        players={
            kind: f"{folder}.players:{name}{kind.title()}"
            for kind in ("expert", "mediocre", "random", *own_players)
        },
        app=None if app is None else f"{folder}.{app}",
        state_schema=None if state_schema is None else f"{folder}.{state_schema}",
    )


_register(
    "NumberGame",
    "agentrl.envs.android.number_game",
    "env:NumberGame",
    "translator:NumberGameTranslator",
    "app:NumberGameApp",
    "state_schema:NumberGameStateSchema",
)
_register(
    "TreeGame",
    "agentrl.envs.wechat.tree_game",
    "env:TreeGame",
    "env:TreeGameTranslator",
    "app:TreeGameApp",
)
_register(
    "Sokoban",
    "agentrl.envs.sokoban",
    "env:Sokoban",
    "translator:SokobanTranslator",
    state_schema="state_schema:SokobanStateSchema",
)
for _name, _module, _players in (
    ("WebApp", "env", {}),
    ("MiniWoB", "miniwob", {"expert": "agentrl.envs.web_app.miniwob_expert.expert:MiniWoBExpert"}),
):
    register(
        f"{_name}-v0",
        f"agentrl.envs.web_app.{_module}:{_name}",
        translator="agentrl.envs.web_app.env:WebAppTranslator",
        players={"random": "agentrl.envs.web_app.players:WebAppRandom", **_players},
        app="virtual_phone.browser.browser_app:BrowserApp",
    )
_register("QA", "agentrl.envs.qa", "env:QA", "translator:QATranslator")
for _folder, _name in (
    ("game_2048", "Game2048"),
    ("timberman", "Timberman"),
    ("snake", "Snake"),
    ("flip", "Flip"),
    ("flappy_bird", "FlappyBird"),
    ("space_fighter", "SpaceFighter"),
):
    _register(
        _name,
        f"agentrl.envs.android.minigames.{_folder}",
        f"env:{_name}Env",
        f"env:{_name}Translator",
        f"env:{_name}App",
        own_players=("noop",) if _name in ("FlappyBird", "SpaceFighter") else (),
    )
for _name, _module in (("NumberLine", "number_line"), ("EZPoints", "ez_points")):
    register(
        f"{_name}-v0",
        f"agentrl.envs.gym_cards.{_module}:{_name}",
        translator=f"agentrl.envs.gym_cards.translators:{_name}Translator",
        players={
            kind: f"agentrl.envs.gym_cards.players:{_name}{kind.title()}"
            for kind in ("expert", "random")
        },
    )
register(
    "FrozenLakeMaps-v0",
    "agentrl.envs.toy_text.frozen_lake_maps:FrozenLakeMaps",
    players={"expert": "agentrl.envs.toy_text.players:FrozenLakeExpert"},
    state_schema="agentrl.envs.toy_text.state_schema:FrozenLakeStateSchema",
    max_episode_steps=100,
)
