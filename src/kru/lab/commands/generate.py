"""`kru generate MODEL`."""

import codecs
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kru.lab.cli import parse
from kru.lab.commands.own_data import load_estimator


@dataclass(frozen=True)
class Options:
    """Text from a language model that `kru fit` wrote: the prompt, and how the model continues it."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """file of the fitted model"""
    prompt: str = ""
    """text to continue"""
    length: int = 200
    """characters, or bytes, to generate"""
    temperature: float = 1.0
    """below 1 for likelier text; 0 for the likeliest character always"""
    top_k: int | None = None
    """draw only from so many likeliest characters"""
    seed: int | None = None
    """random seed; by default every call differs"""


def run(arguments: Sequence[str]) -> int:
    options: Options = parse(Options, "generate", arguments)
    if options.length < 0:
        raise ValueError(f"length: expected at least 0, got {options.length}")
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise ValueError(f"seed: expected 0 to 2^32 - 1, got {options.seed}")
    estimator = load_estimator(options.model)
    from kru.estimators import KRULanguageModel

    if not isinstance(estimator, KRULanguageModel):
        raise ValueError(
            f"{options.model}: expected a model of text (kru fit --as text), got {type(estimator).__name__}"
        )
    symbols = estimator.generate(
        options.prompt,
        options.length,
        temperature=options.temperature,
        top_k=options.top_k,
        random_state=options.seed,
    )
    # Bytes that end in the middle of a character wait for the rest of it.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began = False
    for symbol in symbols:
        if not began:  # the prompt only once it is known to be one
            sys.stdout.write(options.prompt)
            began = True
        is_byte = estimator.symbols == "bytes"
        sys.stdout.write(decoder.decode(bytes([int(str(symbol))])) if is_byte else str(symbol))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", final=True) + "\n")
    return 0
