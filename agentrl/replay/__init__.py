"""Record episodes as they end and read them back: `agentrl.replay.open(run)`."""

from agentrl.replay.filters import Filter
from agentrl.replay.read import RecordedEpisode, Run, open
from agentrl.replay.summary import Summary

__all__ = ["Filter", "RecordedEpisode", "Run", "Summary", "open"]
