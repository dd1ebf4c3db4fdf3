"""`kru doctor`: what is slow or missing on this machine, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass

from kru.lab.cli import parse
from kru.lab.machine import arithmetic, findings, versions


@dataclass(frozen=True)
class DoctorOptions:
    """Report what is slow or missing on this machine, and how to fix it. The exit code is 1 if anything is slow."""


def run(arguments: Sequence[str]) -> int:
    parse(DoctorOptions, "doctor", arguments)
    print(versions())
    rate = arithmetic()
    if rate is not None:
        print(f"arithmetic: {rate / 1e9:.0f} GFLOP/s on one core in float32")
    found = findings()
    for finding in found:
        print(f"\n{'slow' if finding.serious else 'note'}: {finding.what}\n      {finding.remedy}")
    slow = any(finding.serious for finding in found)
    print("\n" + ("" if slow else "Nothing makes kru slow here."), end="\n" if not slow else "")
    return int(slow)
