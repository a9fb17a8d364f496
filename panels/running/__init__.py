"""What every run on the page shares: sessions, progress, cancel, errors."""
