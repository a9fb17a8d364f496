"""CTC beam search for models and for logits of other programs: settings, token lists, texts of hypotheses."""
