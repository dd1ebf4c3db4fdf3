"""`kru data list | fetch | check | generate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import UsageError, parse
from kru.lab.data import DATASETS, FileStatus, check, data_directory, fetch, list_files
from kru.lab.report.text import columns

USAGE = """usage: kru data list|fetch|check|generate ...

  list               the data sets, their terms, and which files are here
  fetch [NAME ...]   download them, continuing what was interrupted; none named: all
  check [NAME ...]   compare the files with their sha256
  generate FOLDER    write a small corpus of generated speech in TIMIT's layout

`kru data ACTION --help` says more. Data sets: """


@dataclass(frozen=True)
class ListOptions:
    """The data sets, their terms, and which files are here."""

    data_dir: Path | None = None
    """the data directory; else KRU_DATA, else the user's cache"""


@dataclass(frozen=True)
class NamesOptions:
    """Download data sets, or compare their files with the sha256."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """which data sets; none: all"""
    data_dir: Path | None = None
    """the data directory; else KRU_DATA, else the user's cache"""


@dataclass(frozen=True)
class GenerateOptions:
    """Write a small corpus in TIMIT's layout, spoken by eSpeak NG or, without it, made of simple signals."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """where to write it; must not exist, or be empty. Then: kru train timit-kru --task.corpus FOLDER"""
    speakers: int = 8
    """how many; a quarter of them are for testing"""
    sentences: int = 4
    """of each speaker, besides the two that all read"""
    seed: int = 0
    """chooses voices and sentences"""


def run(arguments: Sequence[str]) -> int:
    actions = {"list": _list, "fetch": _fetch, "check": _check, "generate": _generate}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE + ", ".join(DATASETS))
        return 0
    if arguments[0] not in actions:
        raise UsageError(f"no action {arguments[0]!r}; expected one of {', '.join(actions)}")
    return actions[arguments[0]](arguments[1:])


def _list(arguments: Sequence[str]) -> int:
    options: ListOptions = parse(ListOptions, "data list", arguments)
    print(f"in {data_directory(options.data_dir)}:\n")
    _print(list_files(options.data_dir))
    print()
    for name, dataset in DATASETS.items():
        print(f"{name}: {dataset.description}. Terms: {dataset.terms}.")
    return 0


def _fetch(arguments: Sequence[str]) -> int:
    options: NamesOptions = parse(NamesOptions, "data fetch", arguments)
    _print(fetch(options.names or None, options.data_dir))
    return 0


def _check(arguments: Sequence[str]) -> int:
    options: NamesOptions = parse(NamesOptions, "data check", arguments)
    statuses = check(options.names or None, options.data_dir)
    _print(statuses)
    return 0 if all(status.state == "ok" for status in statuses) else 1


def _generate(arguments: Sequence[str]) -> int:
    from kru.lab.tasks.speech_corpus import generate

    options: GenerateOptions = parse(GenerateOptions, "data generate", arguments)
    engine = generate(
        options.folder, speakers=options.speakers, sentences=options.sentences, seed=options.seed
    )
    print(f"{options.folder}: written by {engine}")
    return 0


def _print(statuses: Sequence[FileStatus]) -> None:
    rows = [[s.dataset, s.file.path, f"{s.file.size:,}", s.state] for s in statuses]
    print(columns(["data set", "file", "bytes", "state"], rows, left=2))
