"""The tab "Transcribe": recordings to text with several models."""
