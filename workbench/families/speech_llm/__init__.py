"""FireRedASR-LLM and Fun-ASR-Nano: recognisers whose encoder speaks to a language model."""
