"""The built-in environments; importing this package registers them."""

from agentrl.env import register
from agentrl.files import refuse_bare_name

refuse_bare_name(__name__)

register(
    "NumberGame-v0",
    "agentrl.envs.number_game.env:NumberGame",
    translator="agentrl.envs.number_game.translator:NumberGameTranslator",
    players={
        "expert": "agentrl.envs.number_game.players:NumberGameExpert",
        "mediocre": "agentrl.envs.number_game.players:NumberGameMediocre",
        "random": "agentrl.envs.number_game.players:NumberGameRandom",
    },
    app="agentrl.envs.number_game.app:NumberGameApp",
)

register(
    "TreeGame-v0",
    "agentrl.envs.tree_game.env:TreeGame",
    translator="agentrl.envs.tree_game.env:TreeGameTranslator",
    players={
        "expert": "agentrl.envs.tree_game.players:TreeGameExpert",
        "mediocre": "agentrl.envs.tree_game.players:TreeGameMediocre",
        "random": "agentrl.envs.tree_game.players:TreeGameRandom",
    },
    app="agentrl.envs.tree_game.app:TreeGameApp",
)

register(
    "Sokoban-v0",
    "agentrl.envs.sokoban.env:Sokoban",
    translator="agentrl.envs.sokoban.translator:SokobanTranslator",
    players={
        "expert": "agentrl.envs.sokoban.players:SokobanExpert",
        "mediocre": "agentrl.envs.sokoban.players:SokobanMediocre",
        "random": "agentrl.envs.sokoban.players:SokobanRandom",
    },
)

register(
    "QA-v0",
    "agentrl.envs.qa.env:QA",
    translator="agentrl.envs.qa.translator:QATranslator",
    players={
        "expert": "agentrl.envs.qa.players:QAExpert",
        "mediocre": "agentrl.envs.qa.players:QAMediocre",
        "random": "agentrl.envs.qa.players:QARandom",
    },
)
for _folder, _name in (
    ("game_2048", "Game2048"),
    ("timberman", "Timberman"),
    ("snake", "Snake"),
    ("flip", "Flip"),
    ("flappy_bird", "FlappyBird"),
    ("space_fighter", "SpaceFighter"),
):
    _env = f"agentrl.envs.minigames.{_folder}.env"
    _players = f"agentrl.envs.minigames.{_folder}.players"
    register(
        f"{_name}-v0",
        f"{_env}:{_name}Env",
        translator=f"{_env}:{_name}Translator",
        players={
            "expert": f"{_players}:{_name}Expert",
            "mediocre": f"{_players}:{_name}Mediocre",
            "random": f"{_players}:{_name}Random",
        },
        app=f"{_env}:{_name}App",
    )
