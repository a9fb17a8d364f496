"""What a session takes and returns, and what it can do."""
