"""The objective of supervised fine-tuning: the likelihood of the assistant's messages."""

from agentrl.training.finetuning.conversation_dataset import ConversationDataset
from agentrl.training.finetuning.offline_trainer import LOSS
from agentrl.training.learner.learner_group import AnyLearner


class ReplyLoss:
    """The mean negative log-likelihood of the replies' tokens; see `Objective`.

    Args:
        learner: is trained.
        train: conversations to learn from.
        held_out: conversations that are only measured.
        batch: how many of those are measured at a time.
    """

    def __init__(
        self,
        learner: AnyLearner,
        train: ConversationDataset,
        held_out: ConversationDataset,
        batch: int,
    ) -> None:
        self._learner, self._train, self._held_out, self._batch = learner, train, held_out, batch
        self.num_examples, self.num_held_out = len(train), len(held_out)

    def begin(self) -> None:
        """See `Objective.begin`."""
        self._learner.begin_supervised(None)

    def step(self, start: int, end: int, lr: float) -> dict[str, float]:
        """See `Objective.step`; the metrics of `Learner.supervised_step`."""
        return self._learner.supervised_step(self._train.sequences(start, end), lr)

    def measure(self) -> dict[str, float]:
        """See `Objective.measure`: means over the tokens."""
        sums = {LOSS: 0.0, "token_accuracy": 0.0}
        tokens = 0.0
        for batch in self._held_out.batches(self._batch):
            found = self._learner.supervised_loss(batch)
            tokens += found["tokens"]
            for name in sums:
                sums[name] += found[name] * found["tokens"]
        return {name: value / max(1.0, tokens) for name, value in sums.items()} | {"tokens": tokens}
