"""The built-in loggers, one file each; a file's name is the logger's in `logging`."""
