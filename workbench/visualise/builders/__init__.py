"""The builders of views: each takes a `Scene` and `ViewOptions` and returns a `ViewContent`."""
