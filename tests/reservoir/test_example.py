"""The Lorenz example predicts in free run and draws."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "lorenz.py"


def test_lorenz_is_predicted_and_drawn(tmp_path: Path) -> None:
    out = tmp_path / "lorenz.png"
    command = [sys.executable, str(EXAMPLE), "--units", "256", "--steps", "300", "--out", str(out)]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"MPLBACKEND": "agg"}
    ).stdout
    found = re.search(r"valid for ([\d.]+) Lyapunov times", said)
    assert found is not None
    assert float(found[1]) > 2
    assert out.stat().st_size > 10_000
