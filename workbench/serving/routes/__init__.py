"""The HTTP routes: OpenAI's, and the state of the server."""
