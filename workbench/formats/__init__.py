"""File formats: GGUF files, the types of their tensors, the headers of array files."""
