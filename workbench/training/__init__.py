"""Trains the demo checkpoints: spoken digits become features, small networks of the real architectures learn them."""
