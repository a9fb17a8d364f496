"""The recipes of the demos that transcribe, and what they share."""
