"""How models write actions, on screens and in Gymnasium spaces: tags, tool calls, dialects."""
