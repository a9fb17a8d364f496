"""What a family does around its network, on every runtime: from samples to text, and what a trace sees on the way.

A pipeline takes and gives numpy arrays and calls a network through the protocol beside it, which each runtime fulfils.
"""
