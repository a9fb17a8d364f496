"""Files that are made from checkpoints and kept: their digests, their locks, and the process that makes them."""
