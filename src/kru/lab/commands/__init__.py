"""The commands of `kru`, one module each."""
