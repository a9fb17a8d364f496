"""Plots: arrays in, matplotlib Figures out. Knows no models, no files and no page."""
