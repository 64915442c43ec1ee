"""What a job has on the nodes it runs on: phones, files, and the folder it records into."""
