"""Types, devices, matrix products and orders of summation: how PyTorch computes."""
