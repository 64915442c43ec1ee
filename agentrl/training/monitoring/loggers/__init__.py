"""The built-in loggers; each file has the logger's name in `logging`."""
