"""`python -m agentrl`."""

from agentrl.cli import main

main()
