from kru.lab.recipes.files import load_recipe
from kru.training.checkpoint import Progress
from kru.training.progress import Display
from kru.training.trainer import Event


def test_without_a_terminal_there_is_a_line_every_half_minute(tiny, capsys):
    recipe = load_recipe(tiny)
    now = 0.0
    display = Display(recipe.name, recipe, recipe.task.load(), quiet=False, folder=None, clock=lambda: now)
    with display:
        for step in range(1, 101):
            display.show(Event(Progress(step=step, seconds=now), None, loss=1.0))
            display.show(Event(Progress(step=step, seconds=now), None, valid=1.0 / step))
            now += 0.7
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"tiny: step {step}" for step in (1, 44, 87, 100)]
