"""Play a WeChat mini-game by sight: open it, touch it, read the score, notice leaving the game.

Run: python examples/wechat_mini_game.py                    # the WeChat of a virtual phone
     python examples/wechat_mini_game.py SERIAL ENTRY.png 1080   # cut from a screenshot 1080 wide

Needs pip install 'agentrl-screens[ocr]' to read the score.
"""

import sys
import time

import gymnasium
import numpy as np

from agentrl.devices import AppGuard, Tap, Wait, open_device
from agentrl.devices.vision import OcrReader, Template
from agentrl.envs.wechat.tree_game.real_wechat_navigation import open_mini_program

APP = "agentrl.envs.wechat.tree_game.app:TreeGameApp"  # virtual phones' WeChat
WECHAT = "com.tencent.mm"
GAME = f"{WECHAT}/.plugin.appbrand.ui.AppBrandUI"  # chats have a different activity
SCORE = (0.0, 0.11, 1.0, 0.22)  # left, top, right, bottom of the score


class WechatMiniGame(gymnasium.Env):
    """Observation: the screen. Action: where to tap, in [0, 1]. Reward: points gained."""

    action_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def __init__(self, device="virtual", entry=None, steps=6, allow=()):
        self.device = open_device(device, apps=[APP], tempo="quick")
        self.guard = AppGuard(self.device, GAME, allow)
        self.entry, self.steps, self.reader = entry, steps, OcrReader()
        width, height = self.device.size()
        self.observation_space = gymnasium.spaces.Box(0, 255, (height, width, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.guard.begin()
        self.device.stop(WECHAT)  # if the game has a button for a new round, tap it instead
        self.entry = self.entry or self._virtual_entry()
        open_mini_program(self.device, self.entry)
        end = time.monotonic() + 30
        while (score := self._score(screen := self.device.screenshot())) is None:
            assert time.monotonic() < end, "the game's first screen did not appear"
        self.screen, self.score, self.taken = screen, score, 0
        return self.screen, {"score": score}

    def step(self, action):
        self.taken += 1
        result = self.guard.perform(Tap(*map(float, action)), before=self.screen)
        if not result.left:
            result = self.guard.perform(Wait(1.0), before=result.settled.frame)  # animation
        if result.left:
            return self.screen, -1.0, True, False, {"guard": result.events[-1].to_info()}
        self.screen, old = result.settled.frame, self.score
        score = self._score(self.screen)
        self.score = old if score is None else score  # None if a popup covers the score
        info = {"score": self.score}
        return self.screen, float(self.score - old), False, self.taken >= self.steps, info

    def close(self):
        self.device.close()

    def _score(self, screen):
        digits = [line.text for line in self.reader.read(screen, SCORE) if line.text.isdecimal()]
        return int(digits[0]) if digits else None

    def _virtual_entry(self):
        self.device.launch(WECHAT, ".ui.LauncherUI", {})
        return Template.crop(self.device.screenshot(), (0.05, 0.213, 0.17, 0.277))


if __name__ == "__main__":
    serial, *template = sys.argv[1:] or ["virtual"]
    entry = Template.read(template[0], int(template[1])) if template else None
    env = WechatMiniGame(serial, entry)
    screen, info = env.reset(seed=0)
    print(f"score {info['score']}")
    taps, done = [(0.5, 0.94), (0.75, 0.94), (0.5, 0.94), (0.75, 0.94), (0.92, 0.075)], False
    while taps and not done:  # chop, replace, chop, replace, then the circle that closes the game
        screen, reward, terminated, truncated, info = env.step(taps.pop(0))
        print(f"reward {reward:+.0f}, {info}")
        done = terminated or truncated
    env.close()
