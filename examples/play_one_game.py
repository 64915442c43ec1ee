"""Play one number game on a virtual phone, through the real adb server.

Run: python examples/play_one_game.py [expert|mediocre|random]
"""

import sys

import numpy as np

import agentrl
from agentrl.config import EnvConfig
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env

player = load_player(
    resolve_env(EnvConfig(id="NumberGame-v0")), sys.argv[1] if len(sys.argv) > 1 else "expert"
)
translator = agentrl.make_translator("NumberGame-v0")
env = agentrl.make("NumberGame-v0")  # or a real phone with device="emulator-5554"

rng = np.random.default_rng(0)
observation, info = env.reset(seed=7)
done = False
while not done:
    reply = player.reply(info, rng)  # a model would look at `observation` instead
    observation, reward, terminated, truncated, info = env.step(translator.to_action(reply))
    print(f"{reply:75} reward {reward:+.0f}  score {info['score']}")
    done = terminated or truncated
print(f"screen {observation.shape}, {info['right']} right, {info['wrong']} wrong")
env.close()
