"""The chat completions of OpenAI's API: requests in, answers with text and speech out.

This package knows the shapes alone. It starts no server, and it knows no model and no runtime. Any server may use it.
"""
