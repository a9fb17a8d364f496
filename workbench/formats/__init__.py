"""How files are laid out: GGUF files, the types of their tensors, the headers of array files."""
