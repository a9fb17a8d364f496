"""Language models of transformers: decoding, beams, scores, and their caches."""
