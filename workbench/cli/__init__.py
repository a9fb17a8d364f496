"""The `workbench` command: arguments, commands, tables."""
