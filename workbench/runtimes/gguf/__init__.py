"""The GGUF runtime: weights in GGUF files; ggml computes the networks, llama.cpp the language models.

Each network has a file, and each session has a file with its family's name. A checkpoint's small files are unpacked
from the GGUF file or written from its keys, so that a family reads and checks every source in one way.
"""
