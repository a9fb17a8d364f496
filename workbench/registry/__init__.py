"""Finds models by name and opens their sessions within a memory budget."""
