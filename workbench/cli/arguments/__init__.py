"""The arguments of the `workbench` command, and the layout of its help."""
