"""The Visualise tab: pictures of what a model does with a recording, on one time axis."""
