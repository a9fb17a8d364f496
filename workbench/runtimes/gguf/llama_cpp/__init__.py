"""Language models on llama.cpp: contexts, decoding, beams, and the values inside."""
