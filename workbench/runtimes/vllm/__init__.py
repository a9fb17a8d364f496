"""The vLLM runtime: language models and speech language models in vLLM's own engine process, or on a server.

A session's process is the engine's front end: it runs the tokenizer, this project's audio front end, and the calls of
all users, which vLLM batches. Each session has a file with its family's name; `models` has the networks that vLLM
loads, `engine` runs vLLM, `requests` and `capture` are what a session asks of it.
"""
