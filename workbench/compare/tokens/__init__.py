"""Compares what two sides wrote: ids, logits, log-probabilities, choices and beams."""
