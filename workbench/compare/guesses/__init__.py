"""Possible explanations of a wrong stage; `workbench.compare.explain` tries them on the numbers."""
