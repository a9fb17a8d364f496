"""Graphs of ggml operations: tensors, weights, matrix products, attention, and how graphs run."""
