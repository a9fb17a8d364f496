"""Captures the stages of requests inside vLLM's engine, and the side that asks for them."""
