"""The nodes of a job: their phones and files, and the folder they record into."""
