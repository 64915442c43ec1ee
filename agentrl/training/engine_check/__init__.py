"""Compares an engine with transformers on a job's first prompts (`rollout.engine_check`).

An engine that misplaces image tokens or applies wrong positions raises no error; its replies are
only worse. The engine samples replies to a few prompts, transformers predicts the same tokens, and
a job whose engine disagrees stops before its model plays.
"""
