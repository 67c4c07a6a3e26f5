"""Looking at a fleet: what its bus, or one process, shows to whoever watches. Nothing here changes anything."""
