"""The workers that play episodes, in this process or as Ray actors, with their engines."""
