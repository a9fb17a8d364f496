"""Tells noise from bugs by the distances from float64."""
