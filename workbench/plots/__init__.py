"""Plots: functions that take arrays and return matplotlib Figures. They know no models, no files and no page."""
