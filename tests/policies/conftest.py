from pathlib import Path

import pytest
from tokenizers import Tokenizer

from agentrl.policies import torch_companions
from agentrl.policies.chat.chat_encoder import ChatEncoder

torch_companions.patch_broken_imports()


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_vlm: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_vlm / "tokenizer.json"))


@pytest.fixture(scope="session")
def encoder(tiny_vlm: Path) -> ChatEncoder:
    return ChatEncoder(tiny_vlm)
