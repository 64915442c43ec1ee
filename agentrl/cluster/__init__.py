"""Ray: the cluster that the actors of a run live in."""
