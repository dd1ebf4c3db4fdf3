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

  list               list the data sets, their terms, and the files that are available
  fetch [NAME ...]   download data sets, resuming interrupted downloads; default: all
  check [NAME ...]   compare the files with their SHA-256 digests
  generate FOLDER    write a small corpus of generated speech in TIMIT's layout

`kru data ACTION --help` lists the options. Data sets: """


@dataclass(frozen=True)
class ListOptions:
    """List the data sets, their terms, and the files that are available."""

    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""


@dataclass(frozen=True)
class NamesOptions:
    """Download data sets, or compare their files with their SHA-256 digests."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """names of the data sets; default: all"""
    data_dir: Path | None = None
    """data directory; default: KRU_DATA, else the user's cache"""


@dataclass(frozen=True)
class GenerateOptions:
    """Generate a small speech corpus in TIMIT's layout with eSpeak NG, or from simple signals if it is missing."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """new or empty folder; train on it with: kru train timit-kru --task.corpus FOLDER"""
    speakers: int = 8
    """number of speakers; a quarter of them are in the test set"""
    sentences: int = 4
    """sentences per speaker, besides the two that all speakers read"""
    seed: int = 0
    """random seed of voices and sentences"""


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
