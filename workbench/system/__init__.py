"""The machine: memory, process groups, temporary files, the user's cache, versions."""
