"""Decoding of network outputs: CTC, CIF, and the next tokens of a language model."""
