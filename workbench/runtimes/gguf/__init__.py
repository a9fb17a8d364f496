"""The GGUF runtime: weights in GGUF files, computed by ggml, language halves by llama.cpp.

One file per network, one file (a family's name) per session. The small files of a checkpoint are unpacked from the
GGUF file, or written from its keys, so that a family reads and checks every source in one way.
"""
