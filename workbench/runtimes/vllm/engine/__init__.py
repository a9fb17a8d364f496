"""One vLLM engine: its processes, its environment, its log, and the requests that run in it."""
