"""Started by torchrun: trains cases together and, in each process, alone, and compares them. FOLDER RECIPE"""

import itertools
import sys
from pathlib import Path

import numpy as np
import torch

from kru.lab.recipes.files import load_recipe
from kru.lab.recipes.settings import Recipe
from kru.lab.run import RunOptions, train
from kru.lab.tasks import Adding, Music, PennTreebank
from kru.lab.tasks.music import MusicTask
from kru.lab.tasks.penn_treebank import PennTreebankTask
from kru.lab.trainer import RecipeTrainer
from kru.nn.kinds import model_settings
from kru.training.checkpoint import Checkpoint
from kru.training.distributed import joined
from kru.training.interrupt import Interrupted
from kru.training.settings import EvaluationSettings, GrowthSettings, OptimizerSettings


def music(sequences):
    """Rolls of very different lengths: means over parts count very differently in the mean over all."""
    chance = np.random.default_rng(1)
    lengths = itertools.cycle((3, 25, 6, 17, 4, 9, 31))
    rolls = [(chance.random((length, 88)) < 0.1).astype(np.uint8) for length, _ in zip(lengths, range(20))]  # noqa: B905
    splits = {"train": rolls[:sequences], "valid": rolls[5:12], "test": rolls[12:]}
    recipe = Recipe(
        task=Music(),
        model=model_settings("kru", 12, field="real", nonlinearity="tanh"),
        optimizer=OptimizerSettings("adam", 3e-3, clip=1.0),
        evaluation=EvaluationSettings(batch_size=3),
        batch_size=5,
        penalty=0.1,
        epochs=4,
    )
    return recipe, MusicTask(Music(), splits)


def text(kind, **model):
    # Five streams of 87 or 88 characters: the last window has a step in which only the first of them go on.
    letters = ("the cat sat on the mat\nand the dog ran after it\n" * 12)[: 5 * 87 + 2]
    recipe = Recipe(
        task=PennTreebank(29),
        model=model_settings(kind, 6, **({"field": "real"} if kind == "kru" else {}), **model),
        optimizer=OptimizerSettings("adam", 1e-2),
        evaluation=EvaluationSettings(batch_size=3),
        batch_size=5,
        penalty=0.1,
        epochs=3,
    )
    return recipe, PennTreebankTask(
        PennTreebank(29), {"train": letters, "valid": letters[:120], "test": letters}
    )


def growing(by="merge"):
    recipe = Recipe(
        task=Adding(9),
        model=model_settings("kru", 8),
        growth=GrowthSettings(200, by, patience=0, gain=0.5, factor=1.0),
        evaluation=EvaluationSettings(every=4, sequences=40),
        batch_size=3,
        penalty=0.1,
        steps=20,
    )
    return recipe, recipe.task.load()


# With six sequences and batches of five, the last batch has one: nothing for the second process.
CASES = {
    "music": lambda: music(7),
    "a last batch of one": lambda: music(6),
    "lstm": lambda: text("kru-lstm"),
    "streams": lambda: text("kru"),
    "growing": growing,
}


def curve(recipe, task, **options):
    events = []
    trainer = RecipeTrainer(
        recipe, task, report=lambda event: events.append((event.loss, event.valid)), **options
    )
    assert trainer.train() == "budget"
    return trainer, events


def compare_with_one(name, processes):
    recipe, task = CASES[name]()
    alone, expected = curve(recipe, task)
    together, got = curve(recipe, task, processes=processes)
    assert len(expected) == len(got) > 5, name
    for one, other in zip(expected, got, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a == b or abs(a - b) < 1e-4 * abs(a), (name, one, other)
    for key, tensor in alone.model.state_dict().items():
        torch.testing.assert_close(together.model.state_dict()[key], tensor, rtol=1e-3, atol=1e-3)
    expect_same_everywhere(name, together.model)


def expect_same_everywhere(name, model):
    for key, tensor in model.state_dict().items():
        first = tensor.clone()
        torch.distributed.broadcast(first, 0)
        assert torch.equal(tensor, first), f"{name}: {key} differs between processes"


def new_terms_are_the_same_everywhere(processes):
    """They are drawn at random, in each process."""
    recipe, task = growing("rank")
    trainer, _ = curve(recipe, task, processes=processes)
    assert trainer.model.layer.matrix().rank > 2
    expect_same_everywhere("growing by rank", trainer.model)


def go_on_exactly(folder, processes):
    """Interrupted in the middle, with carried states and dropout, and gone on with: bit for bit the same."""
    recipe, task = text("kru-lstm", dropout=0.3)
    options = {"processes": processes, "folder": folder if processes.is_first else None}
    whole, _ = curve(recipe, task, processes=processes)
    calls = itertools.count()

    def check():
        if next(calls) == 5:
            raise Interrupted(2)

    try:
        RecipeTrainer(recipe, task, check=check, **options).train()
    except Interrupted:
        pass
    else:
        raise AssertionError("it was not interrupted")
    torch.distributed.barrier()
    checkpoint = Checkpoint.load(folder / "checkpoint.safetensors")
    assert [part.shape[1] for part in checkpoint.carried] == [5, 5]
    later = RecipeTrainer(recipe, task, **options)
    later.restore(checkpoint)
    assert later.train() == "budget"
    for key, tensor in whole.model.state_dict().items():
        assert torch.equal(later.model.state_dict()[key], tensor), key


def a_whole_run(folder, recipe, processes):
    """With its files; and again, when it is finished already."""
    first = train(load_recipe(recipe), recipe, RunOptions(folder, quiet=True), processes=processes)
    second = train(load_recipe(recipe), recipe, RunOptions(folder, quiet=True), processes=processes)
    assert first["test"] == second["test"]
    assert second["curve"], "what the first process has written is everywhere"


def run(folder, recipe):
    torch.set_num_threads(1)
    with joined() as processes:
        assert processes.count == 2
        for name in CASES:
            compare_with_one(name, processes)
        new_terms_are_the_same_everywhere(processes)
        go_on_exactly(folder / "cut", processes)
        a_whole_run(folder / "together", recipe, processes)
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), f"they would meet an interpreter that ends: {threads}"


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
