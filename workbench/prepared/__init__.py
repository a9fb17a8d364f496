"""Prepared processes: they have imported what other processes need, and fork these in a moment."""
