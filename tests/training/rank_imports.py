"""What every rank imports; imported once, before the ranks are forked."""

from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration  # noqa: F401

import agentrl.training.learner.learner  # noqa: F401
