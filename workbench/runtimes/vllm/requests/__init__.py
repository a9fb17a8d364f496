"""Requests to an engine: prompts, the options for choosing tokens, and rows to score."""
