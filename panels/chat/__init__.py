"""The Chat tab: conversations in text and speech, with the answer's audio played while it is generated."""
