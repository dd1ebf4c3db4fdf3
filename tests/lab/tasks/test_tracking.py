"""State tracking: the automata against their definitions, the splits, and the measure."""

from itertools import permutations, product

import numpy as np
import pytest
import torch

from kru.lab.tasks import Tracking
from kru.lab.tasks.automata import AUTOMATA, find_automaton, symmetric
from kru.training.task import IGNORED


def draw(name: str, steps: int = 41, batch: int = 50) -> tuple[np.ndarray, np.ndarray]:
    task = Tracking(automaton=name, T=steps, valid_length=steps, test_length=steps).load()
    taken = task.take("train", np.arange(batch))
    return taken.inputs.numpy(), taken.targets.numpy()


def test_parity_counts_the_ones() -> None:
    symbols, targets = draw("parity")
    assert np.array_equal(targets, symbols.cumsum(0) % 2)


def test_the_walk_on_a_cycle_adds_up() -> None:
    symbols, targets = draw("cycle")
    assert np.array_equal(targets, (symbols - 1).cumsum(0) % 5)


def test_even_pairs_counts_changes() -> None:
    symbols, targets = draw("even-pairs")
    changes = np.concatenate([np.zeros_like(symbols[:1]), symbols[1:] != symbols[:-1]]).cumsum(0)
    assert np.array_equal(targets, changes % 2)


def test_arithmetic_is_python_s() -> None:
    symbols, targets = draw("arithmetic", steps=15)
    for column in range(symbols.shape[1]):
        text = ""
        for t, symbol in enumerate(symbols[:, column]):
            text += "01234+-*"[symbol]
            expected = IGNORED if t % 2 else eval(text) % 5
            assert targets[t, column] == expected, text


def test_arithmetic_examples() -> None:
    run = find_automaton("arithmetic").run
    for text, value in (("1+2*3", 2), ("1-1-1", 4), ("0*1+4*3-2", 0)):
        symbols = np.array(["01234+-*".index(symbol) for symbol in text])[:, None]
        assert run(symbols)[-1, 0] == value


@pytest.mark.parametrize(("name", "size"), [("s3", 6), ("a5", 60), ("s5", 120)])
def test_word_problems_are_of_groups(name: str, size: int) -> None:
    automaton = find_automaton(name)
    table = automaton.move
    assert table.shape == (size, size)
    # A row and a column of a group's table have every element once; the identity comes first; it is associative.
    for line in (*table, *table.T):
        assert sorted(line) == list(range(size))
    assert np.array_equal(table[0], np.arange(size))
    assert np.array_equal(table[:, 0], np.arange(size))
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(size, size=(3, 500))
    assert np.array_equal(table[table[a, b], c], table[a, table[b, c]])
    assert not np.array_equal(table, table.T)


def test_a_product_of_permutations_moves_points_one_after_the_other() -> None:
    elements = symmetric(3)
    assert elements == list(permutations(range(3)))
    table = find_automaton("s3").move
    for (i, p), (j, q) in product(enumerate(elements), repeat=2):
        assert elements[table[i, j]] == tuple(q[p[point]] for point in range(3))


@pytest.mark.parametrize("name", AUTOMATA)
def test_symbols_are_uniform_and_splits_differ(name: str) -> None:
    problem = Tracking(automaton=name, T=30, valid_length=60, test_length=90)
    task = problem.load()
    sizes = problem.sizes
    assert (sizes.inputs, sizes.outputs) == (task.input_size, task.output_size)
    batches = {split: task.take(split, np.arange(200)) for split in ("train", "valid", "test")}
    assert [len(batch.inputs) for batch in batches.values()] == [30, 60, 90]
    begins = [batch.inputs[:30].T.numpy().tobytes() for batch in batches.values()]
    assert len(set(begins)) == 3
    for phase, drawn in enumerate(task.automaton.phases):
        symbols = batches["test"].inputs.numpy()[phase :: len(task.automaton.phases)]
        counts = np.bincount(symbols.ravel(), minlength=task.input_size)
        assert counts[drawn.start : drawn.stop].sum() == symbols.size
        assert counts[drawn.start : drawn.stop].min() > 0.7 * symbols.size / len(drawn)


def test_the_most_frequent_answer_is_the_baseline() -> None:
    for name in AUTOMATA:
        task = Tracking(automaton=name, T=40).load()
        targets = np.concatenate([b.targets[512:].flatten() for b in task.eval_batches("test", 100)])
        counts = np.bincount(targets[targets != IGNORED])
        assert task.baseline == pytest.approx(100 * counts.max() / counts.sum(), abs=1.5)
    assert Tracking(automaton="s5").load().baseline == pytest.approx(100 / 120)


@pytest.mark.parametrize("name", ["parity", "arithmetic"])
def test_targets_at_the_last_step_only(name: str) -> None:
    whole = Tracking(automaton=name, T=10).load().take("train", np.arange(500))
    last = Tracking(automaton=name, T=10, targets="last").load().take("train", np.arange(500))
    assert torch.equal(whole.inputs, last.inputs)
    there = last.targets != IGNORED
    assert bool((there.sum(0) == 1).all())
    assert torch.equal(last.targets[there], whole.targets[there])
    lengths = there.int().argmax(0) + 1
    expected = {1, 3, 5, 7, 9} if name == "arithmetic" else set(range(1, 11))
    assert set(lengths.tolist()) == expected


class Answers(torch.nn.Module):
    """Right up to a step, wrong after it."""

    def __init__(self, task, until: int) -> None:
        super().__init__()
        self.task, self.until = task, until

    def forward(self, symbols, state=None, lengths=None):
        classes = torch.from_numpy(self.task.automaton.run(symbols.numpy()))
        classes[self.until :] = (classes[self.until :] + 1) % self.task.output_size
        return torch.nn.functional.one_hot(classes, self.task.output_size).float(), None


def test_the_measure_counts_the_second_half() -> None:
    task = Tracking(automaton="cycle", T=40, valid_length=64, test_length=1024).load()
    batch = task.take("valid", np.arange(20))
    for until, expected in ((64, 100.0), (32, 0.0), (48, 50.0)):
        outputs, _ = Answers(task, until)(batch.inputs)
        assert task.score(outputs, batch).value == expected


def test_details_give_every_length_and_the_course() -> None:
    task = Tracking(automaton="s3", T=64, test_length=1024).load()
    details = task.details(Answers(task, 192), 100)
    assert details["accuracy_at"] == {"64": 100.0, "256": 50.0, "1024": 0.0}
    assert details["accuracy_along"] == [100.0] * 6 + [0.0] * 26
    short = Tracking(automaton="parity", T=40).load().details(Answers(task, 1024), 100)
    assert list(short["accuracy_at"]) == ["40", "256", "640", "1024"]


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="test-length: expected 2 to"):
        Tracking(test_length=1).load()
    with pytest.raises(ValueError, match=r"automaton: expected one of parity, .*got 's4'"):
        Tracking(automaton="s4").load()  # type: ignore[arg-type]
