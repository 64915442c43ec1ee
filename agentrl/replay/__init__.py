"""Record every episode as it ends, and read it again: `agentrl.replay.open(run)`."""

from agentrl.replay.read import RecordedEpisode, Run, Summary, open

__all__ = ["RecordedEpisode", "Run", "Summary", "open"]
