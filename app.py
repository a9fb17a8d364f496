"""Starts the page: `python app.py [--host HOST] [--port PORT]`. Hugging Face Spaces start it the same way."""

from panels.__main__ import start

if __name__ == "__main__":
    start()
