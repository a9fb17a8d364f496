"""Requests and answers of OpenAI's API: chats, completions, speech, transcriptions.

This package knows the shapes alone. It starts no server, and it knows no model and no runtime. Any server may use it.
"""
