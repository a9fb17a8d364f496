"""Language models without speech: directories in Hugging Face's form, and the family of causal ones."""
