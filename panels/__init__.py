"""The page: one file per tab with its layout and event wiring, and beside it the functions that make what it shows."""
