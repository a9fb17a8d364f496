"""Speech networks as ggml graphs, one file for each; a file in `workbench.runtimes.pytorch` has the same network."""
