"""The app, environment and translator of a game that needs no code beyond its `PhoneGame`."""

from typing import TypeVar, cast

from agentrl.envs.android.phone_game.env import GameEnv
from agentrl.envs.android.phone_game.game import PhoneGame
from agentrl.envs.android.phone_game.game_app import GameApp
from agentrl.envs.android.phone_game.translator import GameTranslator

T = TypeVar("T")


def game_classes(
    name: str, game: PhoneGame, module: str
) -> tuple[type[GameApp], type[GameEnv], type[GameTranslator]]:
    """Create a game's three classes, which can be registered as `module:Class`.

    ::

        SnakeApp, SnakeEnv, SnakeTranslator = game_classes("Snake", GAME, __name__)

    Args:
        name: name of the game; the classes append `App`, `Env` and `Translator` to it.
        game: description of the game.
        module: the calling module, where other processes find the classes under these names.
    """

    def made(base: type[T], role: str, **members: object) -> type[T]:
        about = f"{base.__name__} of {name}."
        own = {"__module__": module, "__doc__": about, **members}
        return cast(type[T], type(f"{name}{role}", (base,), own))

    app = made(GameApp, "App", game=game)
    return app, made(GameEnv, "Env", app=app), made(GameTranslator, "Translator", game=game)
