"""Who may use the server, for what, and when: modes, keys, limits, and the queue of calls."""
