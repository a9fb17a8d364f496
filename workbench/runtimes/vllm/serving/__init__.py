"""A SpeechLM on vLLM's own server: `vllm serve DIRECTORY` answers chat completions in text and speech.

`configuration` sets what vLLM must know before it starts, `chat_route` takes over chat completions, `conversations`
runs the project's own sessions there, and `engine` asks the server's engine for them.
"""
