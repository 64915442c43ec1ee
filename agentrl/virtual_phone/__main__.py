"""`python -m agentrl.virtual_phone SPEC`: the process that `spawn` starts."""

from agentrl.virtual_phone.host_process import main

main()
