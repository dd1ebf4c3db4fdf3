"""What `kru reproduce` runs for each table or figure of the paper, in full and in its quick version."""

from dataclasses import dataclass, replace

from kru.lab.recipes.files import load_recipe, recipe_names, with_budget
from kru.lab.recipes.settings import Recipe
from kru.lab.report.figures import WALL_CLOCK
from kru.lab.report.paper import paper_tables
from kru.lab.spelling import expect_known
from kru.lab.tasks import Adding, CopyMemory


@dataclass(frozen=True)
class Quick:
    """A small version of a target: these tasks, this budget for every model, this gap in place of the
    recipe's. Models whose steps take many times as long as the others' are left out, and longer or shorter runs of
    the same model."""

    tasks: tuple[str, ...]
    without: tuple[str, ...] = ()
    steps: int = 0
    epochs: int = 0
    every: int = 0
    sequences: int = 0
    T: int = 0

    def apply(self, recipe: Recipe) -> Recipe:
        small = with_budget(recipe, steps=self.steps, epochs=self.epochs)
        task = small.task
        if self.T and isinstance(task, CopyMemory | Adding):
            task = replace(task, T=self.T)
        evaluation = replace(small.evaluation, every=self.every, sequences=self.sequences)
        return replace(small, task=task, evaluation=evaluation, expected_minutes=0.0)


QUICK = {
    "copy": Quick(("copy-1000",), ("rc-urnn",), steps=800, every=50, sequences=200, T=300),
    "adding": Quick(("adding-100",), ("rc-urnn",), steps=2000, every=200, sequences=500),
    "mnist": Quick(
        ("pmnist",), ("rc-urnn", "fc-urnn", "eurnn", "kru-brief"), steps=550, every=110, sequences=1000
    ),
    "ptb": Quick(("ptb-small",), epochs=2, every=669, sequences=50_000),
    "music": Quick(("jsb",), epochs=60),
    "timit": Quick(("timit",), steps=1600, every=80),
    WALL_CLOCK: Quick(("jsb", "piano-midi"), epochs=60),
}


def target_names() -> list[str]:
    return list(QUICK)


def target_recipes(target: str, *, quick: bool) -> list[Recipe]:
    """The recipes of a target, those of the paper's models that are available."""
    expect_known("target", target, QUICK)
    source = "music" if target == WALL_CLOCK else target
    tables = [table for table in paper_tables() if table.target == source]
    if quick:
        tables = [table for table in tables if table.task in QUICK[target].tasks]
    available = set(recipe_names())
    left_out = QUICK[target].without if quick else ()
    names = [
        f"{table.task}-{row.model}" for table in tables for row in table.rows if row.model not in left_out
    ]
    recipes = [load_recipe(name) for name in names if name in available]
    return [QUICK[target].apply(recipe) for recipe in recipes] if quick else recipes
