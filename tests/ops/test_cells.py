"""The one list of cells and nonlinearities, against everything that cannot read it."""

import re
from pathlib import Path
from typing import get_args

import pytest
import torch

import kru
from kru.nn.kinds import Nonlinearity
from kru.nn.recurrent import Recurrent
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.cells import CELLS, NONLINEARITIES

HEADER = Path(__file__).parents[2] / "csrc" / "kru.h"


def enum(member: str) -> dict[str, int]:
    """The members, in lower case and without prefix, of the enumeration in the header that this one belongs to."""
    (body,) = (
        body for body in re.findall(r"enum \{([^}]*)\}", HEADER.read_text()) if f"KRU_{member} " in body
    )
    return {name.lower(): int(code) for name, code in re.findall(r"KRU_(\w+) = (\d+)", body)}


def test_codes_are_those_of_the_header() -> None:
    assert {cell.name: cell.code for cell in CELLS.values()} == enum("ELMAN")
    assert {kind.name: kind.code for kind in NONLINEARITIES.values()} == enum("MODRELU")


def test_names_are_keys() -> None:
    for table in (CELLS, NONLINEARITIES):
        assert list(table) == [entry.name for entry in table.values()]


def test_recipes_know_every_nonlinearity() -> None:
    """The settings have them written out, for the command line and for type checkers."""
    assert set(get_args(Nonlinearity)) == set(NONLINEARITIES)


@pytest.mark.parametrize("kind", [kru.KRU, kru.KRULSTM, kru.KRUGRU])
def test_layers_have_the_gates_and_states_of_their_cell(kind: type[Recurrent]) -> None:
    cell = CELLS[kind.cell]
    assert (kind.gates, kind.states) == (cell.gates, cell.states)


@pytest.mark.parametrize(
    ("cell", "is_complex", "leading", "sizes"),
    [
        ("elman", True, (2,), {"planes": 2, "state": 12, "gates": 1, "rank": 1}),
        ("elman", False, (), {"planes": 1, "state": 6, "gates": 1, "rank": 1}),
        ("elman", False, (5,), {"planes": 1, "state": 6, "gates": 1, "rank": 5}),
        ("lstm", False, (4,), {"state": 6, "gates": 4, "rank": 1, "has_memory": True}),
        ("gru", False, (7, 3), {"state": 6, "gates": 3, "rank": 7, "has_memory": False}),
    ],
)
def test_sizes_follow_from_the_arguments(
    cell: str, is_complex: bool, leading: tuple[int, ...], sizes: dict[str, int]
) -> None:
    factors = [torch.ones(*leading, 2, 3), torch.ones(*leading, 3, 2)]
    arguments = ScanArguments(torch.ones(8, 9, 1), None, factors, cell=cell, is_complex=is_complex)
    expected = {"steps": 8, "batch": 9, "units": 6, **sizes}
    assert {name: getattr(arguments, name) for name in expected} == expected
