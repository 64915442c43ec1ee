"""`python -m agentrl.phone SPEC`: the process that `spawn` starts."""

from agentrl.phone.host import main

main()
