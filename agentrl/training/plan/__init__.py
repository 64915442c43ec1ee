"""Everything that is found out about a job before any work starts: its plan, lengths, memory."""
