"""Texts: scripts, error rates, and transcripts as files."""
