"""FireRedASR-LLM and Fun-ASR-Nano: recognisers whose language model gets embeddings of speech."""
