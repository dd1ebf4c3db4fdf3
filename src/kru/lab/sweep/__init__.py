"""Search for good settings: many runs of one recipe, by any number of workers."""
