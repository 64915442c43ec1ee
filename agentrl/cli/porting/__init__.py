"""`agentrl port`: convert other trainers' configurations."""
