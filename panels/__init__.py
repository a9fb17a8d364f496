"""The page: one folder per tab with its layout, its events and the functions that compute what it shows."""
