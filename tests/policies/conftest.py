from pathlib import Path

import pytest
from tokenizers import Tokenizer

from agentrl.policies.chat.chat_encoder import ChatEncoder


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_vlm: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_vlm / "tokenizer.json"))


@pytest.fixture(scope="session")
def encoder(tiny_vlm: Path) -> ChatEncoder:
    return ChatEncoder(tiny_vlm)
