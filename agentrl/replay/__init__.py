"""Record episodes as they end and read them back: `agentrl.replay.open(run)`."""

from agentrl.replay.episode_summary import Filter, Summary
from agentrl.replay.reader import RecordedEpisode, Run, open

__all__ = ["Filter", "RecordedEpisode", "Run", "Summary", "open"]
