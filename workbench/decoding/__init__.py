"""Search over what a network emits: CTC and the language models fused into it."""
