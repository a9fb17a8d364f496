"""Serves models to other programs: the pool of open sessions, access rules, and the routes of a server.

Nothing here needs the page: `workbench serve` runs these routes alone, and the page mounts the same routes.
"""
