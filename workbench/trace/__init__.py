"""Traces: recording stages, keeping large ones on disk, writing, reading, and mapping the names of other programs."""
