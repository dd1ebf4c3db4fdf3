"""The data files of the laboratory's problems: which they are, where they lie, how to get and check them.

A data directory has the folders ``mnist/``, ``music/``, ``ptb/``, ``timit/`` and ``fsdd/``. It is the one
given explicitly, else the one that the environment variable ``KRU_DATA`` names, else a folder of the user's cache.
Nothing in it is ever unpickled or unpacked to disk: archives are read in place.
"""

from kru.lab.data.download import fetch
from kru.lab.data.errors import DataError
from kru.lab.data.locate import FileStatus, check, data_directory, find, list_files
from kru.lab.data.registry import DATASETS, DataFile, Dataset

__all__ = [
    "DATASETS",
    "DataError",
    "DataFile",
    "Dataset",
    "FileStatus",
    "check",
    "data_directory",
    "fetch",
    "find",
    "list_files",
]
