"""The built-in evaluation suites, one file each; a file's name is the suite's in `eval.suite`."""
