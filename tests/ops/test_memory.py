"""The peak memory of a training step, by formula."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kru.ops import bindings

from .peak_memory import BATCH, STEPS, UNITS

WORKSPACE = 8 << 20
"""Bytes that do not depend on the number of steps, at the sizes of this test: the threads' blocks, pages."""

VALUES = {
    "training,elman,modrelu,complex,small": 2,
    "training,elman,modrelu,complex,symbols": 2,
    "training,elman,modrelu,complex,large": 2 + 2 + 2,
    "training,elman,modrelu,real,small": 1,
    "training,elman,tanh,real,small": 1,
    "training,elman,tanh,real,large": 1 + 1,
    "training,lstm,tanh,real,small": 1 + 1 + 4,
    "training,lstm,tanh,real,large": 1 + 1 + 4 + 4,
    "training,gru,tanh,real,symbols": 1 + 1 + 3,
    "training,gru,tanh,real,large": 1 + 1 + 3 + 3,
    "inference,elman,modrelu,complex,small": 2,
    "inference,elman,modrelu,complex,large": 2 + 2,
    "inference,lstm,tanh,real,small": 1,
    "inference,lstm,tanh,real,large": 1 + 4,
    "inference,gru,tanh,real,symbols": 1,
}


@pytest.mark.skipif(bindings.library is None, reason="the reference keeps what autograd keeps")
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's peak counter")
def test_peak_memory() -> None:
    """What a training step takes whose loss is on the last state: for each step and sequence, in N values,

    - the states: 1, in the complex field 2;
    - the LSTM's cells and the GRU's recurrent product of the candidate: 1; their gates: 4 or 3;
    - with inputs of more than 16 values, which are multiplied for all steps at once: the input part a_t (for
      LSTM and GRU it is the gates' memory; the Elman cell keeps it for modReLU only) and its gradient;

    and a workspace that does not depend on the number of steps. Inference takes the states, and a_t for large
    inputs.
    """
    script = Path(__file__).with_name("peak_memory.py")
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}  # what is freed goes back at once
    run = subprocess.run(
        [sys.executable, str(script), *VALUES], env=environment, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stderr[-3000:]
    for (case, values), line in zip(VALUES.items(), run.stdout.splitlines(), strict=True):
        first, second = (int(number) for number in line.split())
        step = values * BATCH * UNITS * 4
        assert second - first == pytest.approx((STEPS[1] - STEPS[0]) * step, rel=0.03, abs=2 << 20), case
        assert abs(first - STEPS[0] * step) < WORKSPACE, case
