"""Sessions in processes of their own: the client's end, the worker's end, and the channel between them."""
