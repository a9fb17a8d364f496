"""Models by name, and the sessions that are open, within a budget of memory."""
