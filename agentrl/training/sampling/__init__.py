"""Which tasks a training step plays, and which old episodes join their groups."""
