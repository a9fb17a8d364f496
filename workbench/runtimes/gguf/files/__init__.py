"""The content of GGUF files: configurations, tokenizers and names of tensors, unpacked for the families."""
