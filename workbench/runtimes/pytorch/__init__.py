"""The PyTorch runtime: the reference. One file per network, one file (a family's name) per session."""
