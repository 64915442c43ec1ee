"""Questions that need a tool: zoom into a picture, or calculate, then answer.

Run: python examples/ask_with_tools.py [key=value ...]
"""

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np

import agentrl
from agentrl.actions.action_calls import ActionSet
from agentrl.data.gymnasium_spaces import AnyText, ImageTuple
from agentrl.envs.qa.tools import calculate, zoom
from agentrl.errors import ActionError
from agentrl.types import Message, Observation

COLORS = {"red": (220, 40, 40), "green": (30, 160, 60), "blue": (40, 80, 220)}
BOXES = {1: (0, 0, 0.5, 0.5), 2: (0.5, 0, 1, 0.5), 3: (0, 0.5, 0.5, 1), 4: (0.5, 0.5, 1, 1)}
TOOLS = ("zoom", "calculate", "answer")
FORMS = ("zoom(box)", "calculate(term)", "answer(text)")


class AskWithTools(gymnasium.Env):
    """What color is the dot in a box of a picture too large to be shown? What is 17 * 23?"""

    observation_space = gymnasium.spaces.Dict({"text": AnyText(), "images": ImageTuple()})
    action_space = gymnasium.spaces.Dict(
        {"tool": gymnasium.spaces.Discrete(len(TOOLS)), "argument": AnyText()}
    )

    def __init__(self, kinds=("color", "sum")):
        self.kinds = tuple(kinds)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        draw = self.np_random
        self.uses = []
        if str(draw.choice(self.kinds)) == "sum":
            a, b = map(int, draw.integers(11, 100, 2))
            self.picture, self.tool = None, f"{a} * {b}"
            self.answer, text = str(a * b), f"What is {a} * {b}?"
            return self._shows(text)
        colors = [str(draw.choice(list(COLORS))) for _ in BOXES]
        box = int(draw.integers(1, 5))
        self.picture, self.tool, self.answer = self._drawn(colors), str(box), colors[box - 1]
        thumbnail = np.full((28, 28, 3), 128, np.uint8)  # too small for any detail
        return self._shows(f"Box {box}: color?", thumbnail)

    def _drawn(self, colors):
        picture = np.full((560, 560, 3), 240, np.uint8)
        for color, (left, top, _, _) in zip(colors, BOXES.values(), strict=True):
            y, x = int(top * 560) + 80, int(left * 560) + 80
            picture[y : y + 120, x : x + 120] = COLORS[color]
        return picture

    def step(self, action):
        name, argument = TOOLS[int(action["tool"])], str(action["argument"])
        if name == "answer":
            right = argument.strip() == self.answer
            helped = float(self.tool in self.uses)
            observation, info = self._shows("")
            info["metrics"] = {"right": float(right), "looked": helped}
            return observation, float(right), True, False, info
        self.uses.append(argument.strip())
        try:  # a tool error is shown to the model and costs a turn
            observation, info = self._used(name, argument)
        except ValueError as error:
            observation, info = self._shows(f"{name}: {error}"[:200])
        return observation, 0.0, False, False, info

    def _used(self, name, argument):
        if name == "calculate":
            return self._shows(f"= {calculate(argument)}")
        number = int(argument) if argument.strip() in "1234" and argument.strip() else 0
        if self.picture is None or number not in BOXES:
            raise ValueError("no such box")
        return self._shows("", zoom(self.picture, BOXES[number], 28))

    def _shows(self, text, *images):
        info = {"uses": list(self.uses), "tool": self.tool, "answer": self.answer}
        info["kind"] = "sum" if self.picture is None else "color"
        return {"text": text, "images": images}, info


class AskTranslator:
    def __init__(self, style="tag", instruct=True):
        self.calls, self.instruct = ActionSet(FORMS, style), instruct

    def instructions(self):
        if not self.instruct:
            return ""
        return f"Use a tool, then answer. Each reply is one of {self.calls.describe()}."

    def to_observation(self, observation, info):
        return Observation(images=tuple(observation["images"]), text=observation["text"])

    def to_message(self, observation):
        marks = "<image>" * len(observation.images)
        return Message(role="user", text=marks + observation.text, images=observation.images)

    def to_action(self, reply):
        call = self.calls.parse(reply)
        argument = call.arguments[0]
        if argument.startswith('"'):
            try:
                argument = json.loads(argument)
            except ValueError:
                raise ActionError("the argument is not a valid string") from None
        return {"tool": TOOLS.index(call.name), "argument": argument}

    def no_action(self):
        return None


class Expert:
    """Uses the right tool, then answers."""

    looks = 1.0

    def __init__(self, style="tag"):
        self.calls = ActionSet(FORMS, style)

    def reply(self, info, rng):
        if info["uses"]:
            return self.calls.format("answer", self.answer(info, rng))
        if info["kind"] == "sum":
            return self.calls.format("calculate", json.dumps(info["tool"]))
        box = info["tool"] if rng.random() < self.looks else str(rng.integers(1, 5))
        return self.calls.format("zoom", box)

    def answer(self, info, rng):
        return info["answer"]


class Careless(Expert):
    """Usually zooms into a random box, and knows the answer only if it was the right box."""

    looks = 0.2

    def answer(self, info, rng):
        looked = info["kind"] == "sum" or info["tool"] in info["uses"]
        return info["answer"] if looked else str(rng.choice(list(COLORS)))


agentrl.register(
    "AskWithTools-v0",
    "ask_with_tools:AskWithTools",
    translator="ask_with_tools:AskTranslator",
    players={"expert": "ask_with_tools:Expert", "careless": "ask_with_tools:Careless"},
)

if __name__ == "__main__":
    run = agentrl.train(Path(__file__).with_suffix(".yaml"), overrides=sys.argv[1:])
    print(json.dumps(run.summary, indent=2))
