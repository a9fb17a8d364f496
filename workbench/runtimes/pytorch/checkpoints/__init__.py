"""Weights of checkpoints: read, mapped into memory, and brought into the form that computes fastest."""
