"""Play in the browser: `agentrl play ENV --browser`."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agentrl import replay
from agentrl.config import Config
from agentrl.errors import AgentRLError
from agentrl.training.evaluation.play_episode import HUMAN, play
from agentrl.types import ScoredEpisode
from agentrl.viewer.live_episode import LiveEpisode
from agentrl.viewer.viewer_server import ViewerServer


def _stay(until: threading.Event | None) -> None:
    """Keep serving the pages until the event is set or Ctrl-C."""
    with suppress(KeyboardInterrupt):
        while until is not None and not until.wait(0.2):
            pass


def play_in_browser(
    target: Config | str | Path,
    *,
    policy: str = HUMAN,
    seed: int = 0,
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 8200,
    ready: Callable[[str], None] = lambda url: None,
    stays: threading.Event | None = None,
) -> tuple[ScoredEpisode, Path]:
    """Play one episode in the browser, or watch one, and then browse its recording.

    Args:
        target: a run's folder, a configuration, or its file or name.
        policy: `human`, `model`, or the name of a scripted player.
        seed: of the episode.
        greedy: decode greedily instead of sampling.
        checkpoint: of a run: `best`, `last` or a step; None takes its final model.
        overrides: `key=value` settings.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        ready: called with the page's address.
        stays: keep the pages open until this event is set; None closes them with the episode.
            Ctrl-C always closes them.

    Returns:
        The episode, and the folder with its recording.

    Raises:
        ConfigError: as `agentrl.training.evaluation.play_episode.play`; the port is taken.
    """
    stage, servers = LiveEpisode(human=policy == HUMAN), list[ViewerServer]()

    def begun(folder: Path) -> None:
        (folder / "episodes").mkdir(exist_ok=True)
        servers.append(ViewerServer(replay.open(folder), host=host, port=port, stage=stage))
        ready(servers[0].address("play"))

    try:
        scored, folder = play(
            target, stage.audience(), policy=policy, seed=seed, greedy=greedy,
            checkpoint=checkpoint, overrides=overrides, begun=begun,
        )  # fmt: skip
        stage.end(scored)
        _stay(stays)
    except AgentRLError as error:
        stage.end(None, str(error))
        raise
    finally:
        for server in servers:
            server.close()
    return scored, folder
