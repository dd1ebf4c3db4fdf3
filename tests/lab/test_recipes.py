import tomllib
from dataclasses import replace

import pytest

from kru.lab.recipes.files import (
    command_line,
    differences,
    load_recipe,
    parse_recipe,
    recipe_from,
    recipe_mapping,
    recipe_names,
    with_budget,
)
from kru.lab.recipes.settings import Recipe, settings
from kru.lab.recipes.shipped import expand
from kru.lab.report.paper import paper_tables
from kru.lab.studies.tracking import TRACKING_TASKS
from kru.lab.tasks import CopyMemory, Timit
from kru.nn.kinds import KINDS, model_settings
from kru.nn.model import build_model
from kru.optim.parameters import parameter_count

TASKS = ["copy-1000", "copy-2000", "adding-100", "adding-200", "adding-400", "adding-750", "mnist", "pmnist"]
TASKS += ["ptb-small", "ptb-large", "jsb", "piano-midi", "timit", *TRACKING_TASKS]


COMMON = {"kru", "kru-lstm", "kru-gru", "rnn", "lstm", "gru"}
UNITARY = {"rc-urnn", "fc-urnn"}
MORE = {task: UNITARY for task in ("copy-2000", "adding-200", "adding-400", "adding-750")}
MORE |= {task: UNITARY | {"ornn", "eurnn", "exprnn"} for task in ("copy-1000", "adding-100")}
MORE["pmnist"] = UNITARY | {"kru-brief", "fc-urnn-116", "eurnn", "lrd-gru"}
MORE["mnist"] = MORE["pmnist"] - {"lrd-gru"} | {"ornn", "exprnn", "antisymmetric", "antisymmetric-gated"}
MORE |= {task: {"kru-exact", "lru"} for task in TRACKING_TASKS}
MORE |= {
    "ptb-small": {"ornn", "rhn", "kru-rhn", "hyper-lstm", "kru-hyper-lstm"},
    "ptb-large": {"kru-further"},
}


def test_names_of_the_shipped_recipes():
    expected = {f"{task}-{model}" for task in TASKS for model in COMMON | MORE.get(task, set())}
    assert recipe_names() == sorted(expected)


def test_a_file_of_recipes_gives_each_pair_of_task_and_model_the_closest_setting():
    recipes = expand(
        tomllib.loads(
            """
            [defaults]
            epochs = 1
            task.name = "copy"
            optimizer = { lr = 0.1, clip = 1.0 }
            [models.kru]
            penalty = 2.0
            optimizer.lr = 0.2
            [models.lstm]
            [tasks.short]
            task.T = 10
            [tasks.long]
            task.T = 20
            start = "{results}/copy/short-{model}-seed{seed}"
            optimizer.lr = 0.3
            [tasks.long.models.lstm]
            optimizer.lr = 0.4
            [tasks.long.models.kru-wide]
            model = { kind = "kru", hidden_size = 256 }
            """
        )
    )
    assert sorted(recipes) == ["long-kru", "long-kru-wide", "long-lstm", "short-kru", "short-lstm"]
    start = "{results}/copy/short-%s-seed{seed}"
    assert recipes["short-kru"] == {
        "epochs": 1,
        "penalty": 2.0,
        "task": {"name": "copy", "T": 10},
        "model": {"kind": "kru"},
        "optimizer": {"lr": 0.2, "clip": 1.0},
    }
    assert recipes["long-kru"]["optimizer"] == {"lr": 0.3, "clip": 1.0}
    assert recipes["long-kru"]["start"] == start % "kru"
    assert recipes["long-lstm"]["optimizer"] == {"lr": 0.4, "clip": 1.0}
    assert recipes["long-lstm"]["start"] == start % "lstm"
    assert recipes["long-kru-wide"]["model"] == {"kind": "kru", "hidden_size": 256}
    with pytest.raises(ValueError, match="expected the tables defaults, models and tasks, got default"):
        expand({"default": {}, "tasks": {}})


@pytest.mark.parametrize("model", sorted(COMMON | UNITARY))
def test_adding_goes_from_length_to_length_with_every_model(model):
    shorter = ""
    for length in (100, 200, 400, 750):
        recipe = load_recipe(f"adding-{length}-{model}")
        assert recipe.schedule.shape == "cosine"
        assert recipe.start == (shorter and f"{{results}}/adding/{shorter}-seed{{seed}}")
        shorter = recipe.name


def test_every_layer_has_a_recipe_and_every_row_of_the_paper():
    recipes = [load_recipe(name) for name in recipe_names()]
    assert {recipe.model.kind for recipe in recipes} == set(KINDS)
    rows = {f"{table.task}-{row.model}" for table in paper_tables() for row in table.rows}
    assert rows - set(recipe_names()) == {"pmnist-LRD-GRU", "ptb-large-HyperNetworks"}


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_load_and_survive_json(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.expected_minutes > 0
    assert recipe_from(recipe_mapping(recipe), name) == recipe


@pytest.mark.parametrize(
    ("name", "total", "recurrent"),
    [
        ("copy-1000-kru", 5314, 56),
        ("adding-750-kru", 3657, 72),
        ("pmnist-kru", 11858, 72),
        ("ptb-small-kru", 120217, 37556),
        ("ptb-large-kru", 418783, 219140),
        ("ptb-large-kru-lstm", 377066, 250016),
        ("jsb-kru", 17846, 58),
        ("jsb-kru-lstm", 20240, 172),
        ("timit-kru", 196925, 16640),
        ("timit-kru-lstm", 412733, 66560),
        ("copy-1000-rc-urnn", 23510, 3290),
        ("adding-100-rc-urnn", 8193, 3584),
        ("mnist-rc-urnn", 16394, 3584),
        ("copy-1000-fc-urnn", 38282, 32768),
        ("adding-100-fc-urnn", 33921, 32768),
        ("mnist-fc-urnn", 537098, 524288),
        ("mnist-fc-urnn-116", 29822, 26912),
        ("mnist-ornn", 11034, 7696),
        ("ptb-small-ornn", 183602, 131328),
        ("pmnist-eurnn", 26632, 3070),
        ("mnist-exprnn", 16415, 14365),
        ("pmnist-lrd-gru", 40970, 38784),
        ("ptb-small-rhn", 120020, 99846),
        ("ptb-small-kru-rhn", 119288, 30630),
        ("ptb-small-hyper-lstm", 119374, 62820),
        ("ptb-small-kru-hyper-lstm", 120998, 6916),
        ("parity-kru-lstm", 994, 96),
        ("mnist-antisymmetric", 9674, 8128),
        ("mnist-antisymmetric-gated", 9930, 8128),
    ],
)
def test_parameters_are_those_of_the_paper(name, total, recurrent):
    recipe = load_recipe(name)
    assert parameter_count(build_model(recipe.model, recipe.task.sizes)) == (total, recurrent)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("steps = 1", "task.name: expected one of copy"),
        ("steps = 1\n[task]\nname = 'copy'\nU = 3", "task.U: unknown; expected one of T, seed"),
        ("steps = 1.5\n[task]\nname = 'copy'", "steps: expected a whole number, got 1.5"),
        ("steps = true\n[task]\nname = 'copy'", "steps: expected a whole number, got True"),
        ("[task]\nname = 'copy'\n[optimizer]\nlr = 0", "optimizer.lr: expected above 0, got 0"),
        ("[task]\nname = 'copy'\n[optimizer]\nlr = nan", "optimizer.lr: expected above 0, got nan"),
        ("[task]\nname = 'copy'\n[optimizer]\nname = 'sgd'", "optimizer.name: expected one of rmsprop, adam"),
        ("[task]\nname = 'copy'\n[model]\nfactors = 4", "model.factors: expected a list"),
        (
            "[task]\nname = 'copy'\n[optimizer]\nlr = 1" + "0" * 400,
            "optimizer.lr: expected a number up to 1.8e",
        ),
        ("[task]\nname = ['copy']", "task.name: expected one of copy"),
        ("task = 3", "task: expected a table"),
        ("task = ", "r.toml: Invalid value"),
    ],
)
def test_mistakes_in_a_recipe_are_named(text, complaint):
    with pytest.raises(ValueError, match=r"^r\.toml: ") as caught:
        parse_recipe(text, "r", where="r.toml")
    assert complaint in str(caught.value)


def test_unknown_names_get_near_ones():
    with pytest.raises(ValueError, match="there are jsb-gru, jsb-kru"):
        load_recipe("jsb-transformer")
    with pytest.raises(ValueError, match=r"no recipe 'cpoy-1000-kru' \(did you mean copy-1000-kru\?\)"):
        load_recipe("cpoy-1000-kru")
    with pytest.raises(ValueError, match=r"model\.hiden_size: unknown \(did you mean hidden_size\?\)"):
        recipe_from({"task": {"name": "copy"}, "model": {"hiden_size": 3}}, "mine")
    with pytest.raises(ValueError, match=r"no file nowhere\.toml"):
        load_recipe("nowhere.toml")


def test_command_line_has_what_differs():
    recipe = load_recipe("copy-1000-kru")
    assert command_line(recipe, "copy-1000-kru") == "kru train copy-1000-kru --seed 1"
    changed = replace(recipe, seed=2, model=replace(recipe.model, factors=(16, 8), train_recurrent=True))
    assert command_line(with_budget(changed, minutes=2.0), "copy-1000-kru") == (
        "kru train copy-1000-kru --seed 2 --model.factors 16 8 --model.train-recurrent --minutes 2.0"
    )
    spoken = replace(load_recipe("timit-kru"), task=Timit("my corpus"))
    assert command_line(spoken, "timit-kru") == "kru train timit-kru --seed 1 --task.corpus 'my corpus'"


def test_differences_leave_out_the_budget_on_request():
    recipe = Recipe(task=CopyMemory(10), steps=3)
    other = replace(recipe, steps=4, penalty=0.5)
    assert differences(other, recipe) == {"steps": 4, "penalty": 0.5}
    assert differences(other, recipe, budget=False) == {"penalty": 0.5}
    assert settings(recipe)["model.hidden-size"] == 128


def test_unknown_layer():
    with pytest.raises(ValueError, match=r"model\.kind: expected one of kru, .*, got 'transformer'"):
        build_model(model_settings("transformer"), CopyMemory(10).sizes)
