"""Models for other programs: the pool of open sessions, what may be opened, and the routes that a server offers.

Nothing here needs the page: `workbench serve` runs these routes alone, and the page mounts the same routes.
"""
