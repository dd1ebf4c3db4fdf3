"""One step of a stream: exported models in C and in onnxruntime, against LSTMs, in microseconds and bytes.

All contestants take turns in one run, each on one thread; the clock is that thread's. The LSTMs are one that carries as
many values from step to step, and the one of the recipe for the same problem. Where the weights and the data
are there, the test figure of the generated C is measured too, in float and in int8, and its drift from PyTorch in
double precision. Writes results/benchmarks/streaming.json, and the table of it in docs/export.md.

    .venv/bin/python benchmarks/streaming.py --data-dir DIR
"""

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import torch
from streams import COMPILER, STEPS, CModel, Contestant, lstm_contestants, onnx_contestant, torch_contestant
from timing import Case, Timing, measure
from torch import nn

from kru.export import onnx
from kru.lab.data import DataError
from kru.lab.recipes.files import load_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.result import commit, machine, read_weights
from kru.nn.model import SequenceModel, seeded_model
from kru.training.evaluate import evaluate

DRIFT_STEPS = 10_000
PROBLEMS = {"jsb-kru": "jsb-lstm", "pmnist-kru": "pmnist-lstm"}
"""Recipes of ours, and those of the LSTM for the same problem."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each problem")
    parser.add_argument("--results", type=Path, default=Path("results"), help="recorded runs and weights")
    parser.add_argument(
        "--data-dir", type=Path, help="the data directory; else KRU_DATA, else the user's cache"
    )
    parser.add_argument("--sequences", type=int, default=0, help="test sequences for the figures; 0: all")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/streaming.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/export.md"), help="page with the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    problems = []
    for name, lstm in PROBLEMS.items():
        with tempfile.TemporaryDirectory() as folder:
            problems.append(problem(name, lstm, Path(folder), arguments))
        print(table(problems[-1]) + "\n", flush=True)
    record = {
        "command": ".venv/bin/python benchmarks/streaming.py",
        "commit": commit(),
        "machine": machine(),
        "clock": "CPU time of the one thread",
        "compiler": " ".join(COMPILER),
        "problems": problems,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    page = arguments.page.read_text()
    tables = "\n\n".join(map(table, problems))
    marked = r"(<!-- streaming -->\n).*(<!-- streaming -->)"
    arguments.page.write_text(re.sub(marked, rf"\g<1>{tables}\n\g<2>", page, flags=re.DOTALL))
    print(f"written to {arguments.out} and {arguments.page}")


def problem(name: str, lstm: str, folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """The times of all contestants on one problem, and what is known of their accuracy."""
    weights = arguments.results / "weights" / f"{name}-seed1.safetensors"
    recipe = load_recipe(name)
    trained = weights.exists()
    if trained:
        recipe, model = read_weights(weights)
    else:  # times and bytes don't depend on what was learned
        model = seeded_model(recipe.model, recipe.task.sizes, recipe.seed)
    layer, outputs = model.layer.eval(), model.output.out_features
    x = torch.rand(STEPS, 1, layer.input_size)
    in_float, in_int8 = (CModel(model, folder / f"int8-{int8}", int8=int8) for int8 in (False, True))
    onnx(model, folder / "onnx")
    state = (1, 1, layer.state_size)
    carried = len(layer.states) * layer.state_size
    same_size, same_accuracy = carried // 2, load_recipe(lstm).model.hidden_size
    entries = [
        in_float.contestant(name, "C", x),
        in_int8.contestant(name, "C, int8", x),
        onnx_contestant(name, folder / "onnx" / "model_step.onnx", dict.fromkeys(layer.states, state)),
        torch_contestant(name, layer, model.output, x),
    ]
    for title, size in ((f"LSTM {same_size}, same state", same_size), (lstm, same_accuracy)):
        entries += lstm_contestants(title, layer.input_size, size, outputs, folder, x)
    case = Case(name, {f"{entry.model}/{entry.runtime}": entry.call for entry in entries})
    timings = measure(case, arguments.seconds, clock=time.thread_time)
    figures = {f"{lstm}/PyTorch": recorded(arguments.results / f"{lstm}-seed1.json")}
    if trained:
        figures |= measured(name, recipe, model, in_float, in_int8, arguments)
    return {
        "name": name,
        "trained": trained,
        "state_values": carried,
        "drift_after_10000_steps": drift(model, in_float) if trained else None,
        "rows": [row(entry, timings, figures) for entry in entries],
    }


def row(entry: Contestant, timings: dict[str, Timing], figures: dict[str, float | None]) -> dict[str, object]:
    timing = timings[f"{entry.model}/{entry.runtime}"]
    return {
        "model": entry.model,
        "runtime": entry.runtime,
        "median_us": round(timing.median / STEPS * 1e6, 3),
        "minimum_us": round(timing.minimum / STEPS * 1e6, 3),
        "bytes": entry.size,
        "ram_bytes": entry.ram,
        "test": figures.get(f"{entry.model}/{entry.runtime}"),
    }


def measured(
    name: str,
    recipe: Recipe,
    model: SequenceModel,
    in_float: CModel,
    in_int8: CModel,
    arguments: argparse.Namespace,
) -> dict[str, float | None]:
    """Test figures of the model in PyTorch and in C, if the data is there."""
    try:
        task = recipe.task.load(arguments.data_dir)
    except DataError as error:
        print(f"no test figures: {error}")
        return {}
    modules: dict[str, nn.Module] = {
        f"{name}/PyTorch": model,
        f"{name}/C": in_float,
        f"{name}/C, int8": in_int8,
    }
    return {
        key: round(evaluate(module, task, "test", 100, sequences=arguments.sequences), 4)  # type: ignore[arg-type]
        for key, module in modules.items()
    }


def recorded(path: Path) -> float | None:
    return json.loads(path.read_text())["test"] if path.exists() else None


@torch.no_grad()
def drift(model: SequenceModel, in_c: CModel) -> float:
    """The largest difference of the outputs of C from PyTorch in double precision, over its largest output, when
    both run freely from the first step."""
    x = (torch.rand(DRIFT_STEPS, 1, model.layer.input_size) < 0.05).float()
    states, _ = model.layer.double()(x.double())
    expected = model.output.double()(states)
    actual = in_c.run(x, False)
    assert bool(actual.isfinite().all())
    model.float()
    return float((actual - expected).abs().max() / expected.abs().max())


def table(found: dict[str, object]) -> str:
    """A problem as Markdown."""
    lines = [
        f"| {found['name']}: model | runs in | µs a step | bytes | RAM | test |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for entry in found["rows"]:  # type: ignore[attr-defined]
        ram = "" if entry["ram_bytes"] is None else f"{entry['ram_bytes']:,}"
        test = "" if entry["test"] is None else f"{entry['test']:.4g}"
        median = entry["median_us"]
        taken = f"{median:.1f}" if median < 100 else f"{median:,.0f}"
        cells = [entry["model"], entry["runtime"], taken, f"{entry['bytes']:,}", ram, test]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
