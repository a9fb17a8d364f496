"""Language models of n-grams: files, the automaton that scores symbols, and the training on a text."""
