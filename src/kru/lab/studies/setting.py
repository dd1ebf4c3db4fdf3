"""One setting of a study."""

from dataclasses import dataclass

from kru.lab.recipes.settings import Recipe


@dataclass(frozen=True)
class Setting:
    """One setting of a study.

    Attributes:
        task: one of the study's tasks.
        label: what was chosen of the thing that is varied.
        recipe: what is run, the seed aside.
        model: the second part of the name of the recipe that this one was made from.
    """

    task: str
    label: str
    recipe: Recipe
    model: str = "kru"

    @property
    def source(self) -> str:
        """The name of the recipe that this one was made from."""
        return f"{self.task}-{self.model}"
