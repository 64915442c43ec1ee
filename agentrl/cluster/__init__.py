"""The Ray cluster on which a job's actors run."""
