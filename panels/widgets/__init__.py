"""Parts of the page that several tabs use."""
