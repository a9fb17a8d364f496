"""Speech recognition: each recogniser's work around its network, and the session over a recording."""
