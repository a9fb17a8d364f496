"""Traces: recording stages, spilling large ones to disk, writing, reading, and mapping the names of other programs."""
