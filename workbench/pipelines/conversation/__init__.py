"""Conversations with speech: the messages' recordings, the audio tower's front end, and the sessions that answer."""
