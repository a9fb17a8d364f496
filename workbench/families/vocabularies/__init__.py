"""The vocabularies of the families: token ids to text and back, and what the columns of CTC logits mean."""
