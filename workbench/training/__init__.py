"""Trains the demo checkpoints: small networks of the real architectures learn spoken digits."""
