"""What every other package builds on: errors, options, progress, resources, the table of runtimes."""
