"""Training by recipe: settings, model, loop, checkpoints, and the record that a run leaves."""
