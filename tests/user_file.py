"""What a user writes against `import agentrl`, for the type checkers."""

import agentrl
from agentrl import Episode, Evaluation, Message, Observation, Run

config: agentrl.Config = agentrl.load_config("frozen_lake", ["train.steps=1"])
run: Run = agentrl.train(config)
accuracy: float = run.summary["after"]["sampled"]["reward"]
result: Evaluation = agentrl.evaluate(run, episodes=2)
reward: float = result.metrics["reward"]
episode: Episode = agentrl.replay.open(run.path).episode("id").episode
words: list[str] = [turn.reply for turn in episode.turns]
env = agentrl.make("FrozenLake-v1")
translator = agentrl.make_translator("FrozenLake-v1")
message: Message = translator.to_message(Observation(images=(), text=""))
answers: int = agentrl.infer(run, "questions.jsonl", "answers.jsonl").rows
phone: agentrl.Device = agentrl.open_device("emulator-5554")
