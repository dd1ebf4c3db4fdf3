"""Recipes: everything that decides what a run computes, as TOML."""
