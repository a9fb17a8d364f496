"""The work of each family around its network: features before it, text after it, stages for a trace.

It is the same on every runtime. A pipeline takes and returns numpy arrays. It calls the network
through a protocol in the same file; each runtime implements that protocol.
"""
