"""Language models: prompts, generation, conversations in text, scores of texts, nearest tokens."""
