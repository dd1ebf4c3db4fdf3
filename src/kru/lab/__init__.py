"""The laboratory: the paper's tasks, recipes and reports, behind the `kru` command. The library never imports it."""
