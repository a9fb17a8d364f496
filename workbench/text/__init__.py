"""Texts: their scripts, how far one is from a reference, and transcripts as files."""
