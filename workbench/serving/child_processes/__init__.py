"""Work in processes of its own with a limit of memory, so that the server stays small."""
