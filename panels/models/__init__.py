"""The tab "Models": what is there, what is loaded, what it needs."""
