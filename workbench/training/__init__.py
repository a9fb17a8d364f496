"""Trains the demo checkpoints: spoken digits into a corpus of features, small networks of the real architectures out of it."""
