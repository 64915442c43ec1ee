"""`agentrl port`: configurations from those of other trainers."""
