"""Speech as tokens: parallel codec streams, their delay pattern, masks, phases, sampling, and decoding in chunks."""
