"""The models whose taps `agentrl devices doctor --dialect` proves."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.actions.open_dialect import open_dialect
from agentrl.config import ModelConfig
from agentrl.devices.doctor import hit_proof
from agentrl.devices.doctor.phone_probes import Prove
from agentrl.errors import ConfigError
from agentrl.policies.models.model_adapter import resize_image
from agentrl.policies.models.model_source import resolve_model
from agentrl.policies.open_model import open_encoder, resize_for
from agentrl.types import Image


def dialect_proof(dialect: str | None, model: str | None, max_pixels: int) -> Prove | None:
    """The test of a dialect on a phone; None without a dialect.

    Raises:
        ConfigError: there is no such dialect or model, or a model without a dialect.
    """
    if dialect is None:
        if model is not None:
            raise ConfigError(f"--model {model}: has no effect without --dialect")
        return None
    speaker = speaker_of(dialect, model, max_pixels)
    return partial(hit_proof.findings, speaker=speaker, name=dialect)


def speaker_of(dialect: str, model: str | None, max_pixels: int) -> hit_proof.Speaker:
    """A model that writes a dialect.

    Args:
        dialect: its name.
        model: path or id of the model that resizes screens; None for a server of such models.
        max_pixels: largest area of the image that the model sees, or that is sent to the server.

    Raises:
        ConfigError: there is no such dialect or model.
    """
    opened = open_dialect(dialect)
    settings = ModelConfig(path=model or "tiny", max_pixels=max_pixels)
    encoder = None
    if model is not None:
        with TemporaryDirectory() as folder:
            encoder = open_encoder(settings, resolve_model(settings, 0, Path(folder, "tiny")))
    opened.resize = resize_for(opened, settings, encoder)

    def see(image: Image) -> Image:
        return resize_image(image, opened.resize((image.shape[1], image.shape[0])))

    return hit_proof.Speaker(dialect=opened, see=see)
