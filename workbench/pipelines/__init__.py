"""What each family does around its network, the same on every runtime: features before it, text after it, stages for a
trace.

A pipeline takes and returns numpy arrays. It calls the network through a protocol in the same file; each runtime
implements that protocol.
"""
