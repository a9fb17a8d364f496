"""Converted files in the user's cache: digests of their sources, locks, and the process that makes them."""
