import tomllib

import pytest

from kru.lab.recipes.files import load_recipe
from kru.lab.sweep.space import load_space, parse_space

RECIPE = load_recipe("jsb-kru")


def space(text):
    return parse_space(tomllib.loads(text), RECIPE)


def test_values_are_put_into_the_recipe():
    varied = space("""
        penalty = {low = 1e-4, high = 1.0, log = true}
        batch_size = {low = 2, high = 8}
        [optimizer]
        lr = {low = 1e-3, high = 1e-2}
        name = {choices = ["adam", "rmsprop"]}
        [model]
        factors = {choices = [[10, 10], [4, 25]]}
        train_recurrent = {choices = [true, false]}
    """)
    values = {
        "penalty": 0.5,
        "batch_size": 3,
        "optimizer.lr": 0.002,
        "optimizer.name": "rmsprop",
        "model.factors": "[4, 25]",
        "model.train_recurrent": False,
    }
    recipe = varied.apply(RECIPE, values)
    assert (recipe.penalty, recipe.batch_size, recipe.optimizer.lr) == (0.5, 3, 0.002)
    assert (recipe.optimizer.name, recipe.model.factors) == ("rmsprop", (4, 25))
    assert recipe.model.train_recurrent is False
    assert recipe.epochs == RECIPE.epochs
    assert recipe.name == "jsb-kru"


def test_grid():
    points = space("""
        penalty = {low = 1e-4, high = 1.0, log = true, points = 3}
        batch_size = {low = 2, high = 7, step = 2}
        optimizer.decay = {low = 0.1, high = 0.35, step = 0.1}
        model.factors = {choices = [[10, 10]]}
    """).grid()
    assert len(points) == 3 * 3 * 3 * 1
    assert sorted({point["penalty"] for point in points}) == pytest.approx([1e-4, 1e-2, 1.0])
    assert {point["batch_size"] for point in points} == {2, 4, 6}
    assert {point["optimizer.decay"] for point in points} == {0.1, 0.2, 0.3}
    assert points[0] == {
        "penalty": 1e-4,
        "batch_size": 2,
        "optimizer.decay": 0.1,
        "model.factors": "[10, 10]",
    }


def test_whole_numbers_need_no_step_in_a_grid():
    assert [
        point["schedule.patience"] for point in space("schedule.patience = {low = 1, high = 3}").grid()
    ] == [
        1,
        2,
        3,
    ]


def test_a_grid_of_a_range_that_is_not_divided_is_refused():
    with pytest.raises(ValueError, match=r"^penalty: a grid needs points, step or choices$"):
        space("penalty = {low = 0.1, high = 1.0}").grid()
    with pytest.raises(ValueError, match="seed: a grid needs points, step or choices"):
        space("seed = {low = 0, high = 1_000_000_000_000}").grid()


def test_a_grid_that_nobody_could_run_is_refused():
    fields = ("penalty", "optimizer.lr", "optimizer.decay")
    wide = "\n".join(f"{field} = {{low = 0.1, high = 0.9, points = 1000}}" for field in fields)
    with pytest.raises(
        ValueError, match="space: expected a grid of at most 100,000 points, got 1,000,000,000"
    ):
        space(wide).grid()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected at least one field, such as penalty"),
        ("penalty = 3", r"penalty: expected a table with low and high, or with choices, got 3"),
        ("optimizer.rate = {low = 1, high = 2}", r"optimizer.rate: no such field .* one of .*optimizer.lr"),
        ("nothing.at.all = {low = 1, high = 2}", r"nothing.at.all: no such field"),
        ("task.name = {choices = ['copy']}", r"task.name: no such field"),
        ("penalty = {low = 0.1}", r"penalty: expected low and high, or choices, got no high"),
        ("penalty = {low = 0.1, high = 0.1}", r"penalty: expected low below high, got 0.1 and 0.1"),
        ("penalty = {low = -1.0, high = 0.1}", r"penalty.low: expected at least 0, got -1.0"),
        ("penalty = {low = 0.1, hihg = 1}", r"penalty.hihg: unknown; expected one of low, high, log"),
        (
            "penalty = {low = 0, high = 1, log = true}",
            r"penalty.low: expected above 0 on a logarithmic scale",
        ),
        ("penalty = {low = 0.1, high = 1, log = 1}", r"penalty.log: expected true or false, got 1"),
        ("penalty = {low = 0.1, high = 1, step = 0}", r"penalty.step: expected a number above 0, got 0"),
        (
            "penalty = {low = 0, high = 1, points = 1000000000}",
            r"penalty.points: expected at most 100,000, got 1,0",
        ),
        (
            "penalty = {low = 0, high = 1, step = 1e-9}",
            r"penalty.step: expected at most 100,000 values, got 1,0",
        ),
        ("penalty = {low = 0.1, high = 1, step = 0.1, log = true}", r"penalty.step: expected without log"),
        (
            "penalty = {low = 0.1, high = 1, points = 1}",
            r"penalty.points: expected a whole number of at least 2",
        ),
        ("penalty = {low = 0.1, high = 1, choices = [1]}", r"penalty: expected choices alone or a range"),
        (
            "batch_size = {low = 1.5, high = 3}",
            r"batch_size.low: expected a whole number, got 1.5",
        ),
        ("batch_size = {low = 1, high = 3, step = 0.5}", r"batch_size.step: expected a whole number above 0"),
        (
            "optimizer.name = {low = 1, high = 2}",
            r"optimizer.name: expected choices, since it is not a number",
        ),
        ("optimizer.name = {choices = ['sgd']}", r"optimizer.name.choices: expected one of rmsprop, adam"),
        ("optimizer.name = {choices = []}", r"optimizer.name.choices: expected a list of values, got \[\]"),
        ("seed = {choices = [1, 1]}", r"seed.choices: expected each value once"),
    ],
)
def test_mistakes_name_the_field(text, message):
    with pytest.raises(ValueError, match=message):
        space(text)


def test_the_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"space: no file .*missing.toml"):
        load_space(tmp_path / "missing.toml", RECIPE)
    path = tmp_path / "space.toml"
    path.write_text("penalty = {low = }")
    with pytest.raises(ValueError, match=r"space.toml: .*line 1"):
        load_space(path, RECIPE)
