"""Live transcription over websockets: the page's microphone, and OpenAI's realtime route."""
