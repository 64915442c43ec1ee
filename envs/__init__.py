"""The games that come with agentrl; importing this registers them."""

from agentrl.env import register
from agentrl.links import refuse_bare_name

refuse_bare_name(__name__)

register(
    "NumberGame-v0",
    "agentrl.envs.android.env:NumberGame",
    translator="agentrl.envs.android.translator:NumberGameTranslator",
    players={
        "expert": "agentrl.envs.android.players:Expert",
        "mediocre": "agentrl.envs.android.players:Mediocre",
        "random": "agentrl.envs.android.players:Random",
    },
    app="agentrl.envs.android.app:NumberGameApp",
)

register(
    "TreeGame-v0",
    "agentrl.envs.wechat.env:TreeGame",
    translator="agentrl.envs.wechat.translator:TreeGameTranslator",
    players={
        "expert": "agentrl.envs.wechat.players:Expert",
        "mediocre": "agentrl.envs.wechat.players:Mediocre",
        "random": "agentrl.envs.wechat.players:Random",
    },
    app="agentrl.envs.wechat.app:TreeGameApp",
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
