"""Choice of the tasks that a training step plays, and of old episodes that join the groups."""
