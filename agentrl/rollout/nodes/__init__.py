"""The nodes of a job: their phones and files, and the folder that they record into."""
