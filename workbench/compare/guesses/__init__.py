"""Guesses at what would explain a stage that is wrong; `workbench.compare.explain` tries them on the numbers."""
