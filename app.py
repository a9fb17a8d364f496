"""Starts the page: `python app.py [--host HOST] [--port PORT]`. Hugging Face Spaces start it the same way."""

from panels.serving import main

if __name__ == "__main__":
    main()
