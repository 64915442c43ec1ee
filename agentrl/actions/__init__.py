"""How a model spells an action: tags, tool calls, actions of screens and of Gymnasium spaces."""
