"""The recipe of the demo that speaks: a codec, a tower that hears, and a language model over both."""
