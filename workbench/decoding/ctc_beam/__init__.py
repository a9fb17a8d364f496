"""CTC prefix beam search with language models, a lexicon and boosted phrases."""
