"""The draw of four keys, in Node against the probabilities of all sets of four."""

import itertools
import json
import math
import shutil
import subprocess

import pytest

from .conftest import ROOT

LOGITS = {60: 1.0, 62: 0.5, 64: -0.5, 67: 0.0, 70: -1.0, 72: 1.5}
DRAWS = 20_000


@pytest.mark.parametrize("surprise", [0.5, 1.0])
def test_sets_of_four_keys_have_the_products_of_their_odds(surprise: float, tmp_path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    module = tmp_path / "chords.mjs"
    shutil.copy(ROOT / "examples" / "browser" / "chords.js", module)
    outputs = [LOGITS.get(21 + key, -60.0) for key in range(88)]
    script = (
        f"import {{ drawChord }} from {json.dumps(module.as_uri())};"
        "let seed = 1; const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;"
        f"const all = Array.from({{ length: {DRAWS} }}, () =>"
        f" drawChord({json.dumps(outputs)}, {surprise}, random).join());"
        "console.log(JSON.stringify(all));"
    )
    command = ["node", "--input-type=module", "-e", script]
    drawn = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    sets = list(itertools.combinations(LOGITS, 4))
    products = [math.exp(sum(LOGITS[midi] for midi in keys) / surprise) for keys in sets]
    for keys, product in zip(sets, products, strict=True):
        expected = product / sum(products)
        found = drawn.count(",".join(map(str, keys))) / DRAWS
        assert abs(found - expected) < 5 * math.sqrt(expected / DRAWS) + 1e-4
