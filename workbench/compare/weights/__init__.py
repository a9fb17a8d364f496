"""Compares the tensors of a weight file with those of its checkpoint."""
