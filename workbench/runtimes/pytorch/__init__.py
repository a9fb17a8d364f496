"""The PyTorch runtime: the reference. Each network has a file, and each session has a file with its family's name."""
