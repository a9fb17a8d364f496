"""Text while somebody speaks: segments of speech in sound that is still coming, partial texts, and final ones.

This package knows no microphone, no socket and no model: it takes samples and a function that transcribes a segment.
"""
