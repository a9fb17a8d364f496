"""Embeddings as parts of chat messages on vLLM's own server."""
