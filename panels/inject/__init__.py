"""The tab "Inject": embeddings into the prompt of a language model."""
