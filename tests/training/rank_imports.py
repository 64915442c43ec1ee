"""What every rank imports; imported once, before the ranks are forked."""

from agentrl.policies import torch_companions

torch_companions.patch_broken_imports()

from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration  # noqa: E402, F401

import agentrl.training.learner.learner  # noqa: E402, F401
