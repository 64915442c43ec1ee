"""Workers that play episodes, in this process or as Ray actors, and their engines."""
