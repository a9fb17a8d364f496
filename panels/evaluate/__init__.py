"""The tab "Evaluate": models over a corpus, and whether they differ."""
