"""The one kind of error that a missing, truncated, altered or unreadable data file raises."""


class DataError(RuntimeError):
    """A data file is not what it should be. The message names the file, what is wrong and what to do."""
