"""Speech networks with the parameter names of their original packages, one file for each."""
