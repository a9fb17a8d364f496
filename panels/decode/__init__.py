"""The tab "Decode": CTC decoders side by side, their searches explained, and weights swept."""
