"""SpeechLM (ESPnet's Bagpiper): its directories, its parts, its tokenizer and its GGUF files."""
