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
    "QA-v0",
    "agentrl.envs.qa.env:QA",
    translator="agentrl.envs.qa.translator:QATranslator",
    players={
        "expert": "agentrl.envs.qa.players:Expert",
        "mediocre": "agentrl.envs.qa.players:Mediocre",
        "random": "agentrl.envs.qa.players:Random",
    },
)
