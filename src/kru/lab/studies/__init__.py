"""Studies: a recipe of the paper run many times with one thing varied and all else fixed."""
