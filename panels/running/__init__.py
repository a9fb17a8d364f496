"""Common parts of all runs on the page: sessions, progress, cancel, errors."""
