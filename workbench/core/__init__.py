"""The base of every other package: errors, options, settings, progress, resources, the table of runtimes."""
