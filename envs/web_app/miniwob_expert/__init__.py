"""The scripted player of MiniWoB++: one function per kind of task, from a page to an action."""
