"""The vLLM runtime: language models and speech language models in vLLM's own engine process, or on a server.

A session's process is the engine's front end: tokenizer, our audio front end, and the calls of all users, which vLLM
batches. One file (a family's name) per session; `models` has the networks that vLLM loads.
"""
