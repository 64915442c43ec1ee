"""The games that come with agentrl; importing this registers them."""

from agentrl.env import register
from agentrl.folder_links import refuse_bare_name

refuse_bare_name(__name__)

register(
    "NumberGame-v0",
    "agentrl.envs.number_game.env:NumberGame",
    translator="agentrl.envs.number_game.translator:NumberGameTranslator",
    players={
        "expert": "agentrl.envs.number_game.players:Expert",
        "mediocre": "agentrl.envs.number_game.players:Mediocre",
        "random": "agentrl.envs.number_game.players:Random",
    },
    app="agentrl.envs.number_game.app:NumberGameApp",
)

register(
    "TreeGame-v0",
    "agentrl.envs.tree_game.env:TreeGame",
    translator="agentrl.envs.tree_game.translator:TreeGameTranslator",
    players={
        "expert": "agentrl.envs.tree_game.players:Expert",
        "mediocre": "agentrl.envs.tree_game.players:Mediocre",
        "random": "agentrl.envs.tree_game.players:Random",
    },
    app="agentrl.envs.tree_game.app:TreeGameApp",
)

register(
    "Sokoban-v0",
    "agentrl.envs.sokoban.env:Sokoban",
    translator="agentrl.envs.sokoban.translator:SokobanTranslator",
    players={
        "expert": "agentrl.envs.sokoban.players:Expert",
        "mediocre": "agentrl.envs.sokoban.players:Mediocre",
        "random": "agentrl.envs.sokoban.players:Random",
    },
)

register(
    "QA-v0",
    "agentrl.envs.qa.env:QA",
    translator="agentrl.envs.qa.translator:QATranslator",
    players={
        "expert": "agentrl.envs.qa.players:Expert",
        "mediocre": "agentrl.envs.qa.players:Mediocre",
        "random": "agentrl.envs.qa.players:Random",
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
    _phone = f"agentrl.envs.minigames.{_folder}.phone"
    _players = f"agentrl.envs.minigames.{_folder}.players"
    register(
        f"{_name}-v0",
        f"{_phone}:{_name}Env",
        translator=f"{_phone}:{_name}Translator",
        players={
            "expert": f"{_players}:Expert",
            "mediocre": f"{_players}:Mediocre",
            "random": f"{_players}:Random",
        },
        app=f"{_phone}:{_name}App",
    )
