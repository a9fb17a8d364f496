"""File formats: GGUF files and their tensor types, headers of array files, text files, weight files."""
