"""Run folders: one reader and one writer for each file that a job writes."""
