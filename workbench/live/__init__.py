"""Live transcription: segments of speech in streaming audio, with partial and final texts.

This package knows no microphone, no socket and no model: it takes samples and a function that transcribes a segment.
"""
