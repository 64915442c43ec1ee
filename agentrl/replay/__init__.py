"""Record episodes as they end and read them back: `agentrl.replay.open(run)`."""

from agentrl.replay.run_reader import RecordedEpisode, Run, open
from agentrl.runs.episode_summary import Filter, Summary

__all__ = ["Filter", "RecordedEpisode", "Run", "Summary", "open"]
