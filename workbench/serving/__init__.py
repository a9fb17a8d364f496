"""Models for other programs: the pool of open sessions, what may be opened, and the routes that a server offers.

Everything here goes without the page: `workbench serve` runs it alone, and the page mounts the same routes.
"""
