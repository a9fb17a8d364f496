"""The tab "Models": the available models, the loaded ones, and their needs."""
