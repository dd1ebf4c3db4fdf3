"""examples/browser: the page that reads digits and writes chorales, as a visitor without a network uses it."""

import time

import numpy as np
import pytest
import torch

from kru.lab.result import read_weights
from kru.lab.tasks.mnist import Mnist

from .strokes import strokes_of

ACCESSIBLE = """() => [...document.querySelectorAll("button, input, canvas")].filter((element) =>
  !(element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.length)).map((e) => e.id)"""


@pytest.fixture(scope="module")
def digits(builder):
    return read_weights(builder.RESULTS / f"{builder.DIGITS}.safetensors")[1].eval()


@pytest.fixture(scope="module")
def music(builder):
    return read_weights(builder.RESULTS / f"{builder.MUSIC}.safetensors")[1].eval()


@pytest.fixture(scope="module")
def known(real_data):
    batch = Mnist("plain").load(real_data).take("test", np.arange(100))
    pixels = batch.inputs[:, :, 0].T.numpy()
    return pixels, batch.targets.numpy()


def answers(model, pixels) -> torch.Tensor:
    """Outputs after the last pixel; `pixels` is (cases, 784)."""
    with torch.no_grad():
        return model(torch.as_tensor(np.array(pixels), dtype=torch.float32).T[:, :, None])[0]


def status(page) -> str:
    line = page.locator("#digit-status", has_text="Read as")
    line.wait_for(state="attached")
    return line.inner_text()


def draw(page, strokes) -> None:
    """Draw with the mouse what has coordinates from 0 to 1."""
    box = page.locator("#pad").bounding_box()
    page.locator("#clear").click()
    for stroke in strokes:
        where = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*where[0])
        page.mouse.down()
        for point in where[1:]:
            page.mouse.move(*point)
        page.mouse.up()


def test_small_and_self_contained(page_file, open_page, builder) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert len(text.encode()) < builder.LIMIT
    assert "{" + "style.css}" not in text
    module, _ = builder.exported(builder.DIGITS, int8=False)
    assert module.strip() in text, "the page runs the exported module as it is"
    # The fixture fails on whatever is fetched; beside that, the page tells the browser to refuse it.
    page = open_page()
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_control_has_a_name_and_nothing_sticks_out(width: int, open_page) -> None:
    page = open_page(width)
    assert page.evaluate(ACCESSIBLE) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_outputs_are_those_of_pytorch(open_page, digits, known) -> None:
    pixels, labels = known
    page = open_page()
    run = "(cases) => cases.map((x) => Array.from(kru.digits.run(x.map((p) => [p])).outputs))"
    found = np.array(page.evaluate(run, pixels[:12].tolist()))
    expected = answers(digits, pixels[:12]).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert (found.argmax(-1) == labels[:12]).mean() > 0.9


def test_digits_of_the_test_set_drawn_by_mouse(open_page, digits, known) -> None:
    pixels, labels = known
    page = open_page()
    right = 0
    for image, label in zip(pixels[:10], labels[:10], strict=True):
        draw(page, strokes_of((255 * image).reshape(28, 28)))
        said = status(page)
        seen = page.evaluate("Array.from(kru.digit.pixels())")
        belief = torch.softmax(answers(digits, [seen])[0], -1)
        assert said == f"Read as {int(belief.argmax())}, {100 * float(belief.max()):.0f} per cent sure."
        assert page.locator("#answer").inner_text() == str(int(belief.argmax()))
        right += int(belief.argmax()) == label
    assert right >= 9


def test_drawings_look_like_the_test_set(open_page, digits, known) -> None:
    pixels, labels = known
    page = open_page()
    strokes = [strokes_of((255 * image).reshape(28, 28)) for image in pixels]
    drawn = np.array(page.evaluate("(all) => all.map((s) => Array.from(kru.toPixels(s)))", strokes))
    assert (answers(digits, drawn).argmax(-1).numpy() == labels).mean() >= 0.85
    images = drawn.reshape(-1, 28, 28)
    across, down = images.any(1).sum(-1), images.any(2).sum(-1)
    assert max(across.max(), down.max()) <= 21
    for axis in (1, 2):
        centre = (images.sum(axis) * (np.arange(28) + 0.5)).sum(-1) / images.sum((1, 2))
        assert np.abs(centre - 14.5).max() <= 0.51
    assert drawn.mean() == pytest.approx(pixels.mean(), rel=0.1)


def test_place_and_size_of_a_drawing_do_not_matter(open_page) -> None:
    page = open_page()
    strokes = [[(0.2, 0.2), (0.6, 0.2), (0.3, 0.9)], [(0.25, 0.5), (0.5, 0.5)]]
    small = [[(0.5 + 0.4 * x, 0.1 + 0.4 * y) for x, y in stroke] for stroke in strokes]
    one, other = page.evaluate("(all) => all.map((s) => Array.from(kru.toPixels(s)))", [strokes, small])
    np.testing.assert_allclose(one, other, atol=0.02)
    assert max(one) > 0.99
    assert sum(page.evaluate("Array.from(kru.toPixels([]))")) == 0


def test_a_digit_by_keyboard_alone(open_page) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "pad"
    page.keyboard.press("Delete")
    page.keyboard.press("Space")
    for _ in range(14):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert status(page).startswith("Read as 1,")


def test_every_example_is_read(open_page) -> None:
    page = open_page()
    for digit in range(10):
        page.get_by_role("button", name=f"example {digit}").click()
        assert status(page).startswith(f"Read as {digit},")


def test_the_reading_is_watched_and_rewound(open_page) -> None:
    """With motion: the slider moves from pixel to pixel, and the time that the steps took is no more than passed."""
    start = time.monotonic()
    page = open_page(reduced_motion="no-preference")
    seen = [int(page.locator("#step").input_value()) for _ in range(3)]
    assert seen == sorted(seen)
    status(page)
    took = page.locator("#took").inner_text()
    assert took.startswith("784 steps in ")
    assert 0 < int(took.split()[3]) < 1000 * (time.monotonic() - start)
    slider = page.locator("#step")
    slider.focus()
    slider.press("ArrowLeft")
    assert page.locator("#place").inner_text() == "row 28, pixel 783"
    assert slider.get_attribute("aria-valuetext").startswith("pixel 783 of 784: ")


def logits(model, steps: list[list[int]]) -> torch.Tensor:
    """What the model expects after `steps`, lists of MIDI numbers; it reads silence first."""
    x = torch.zeros(len(steps) + 1, 1, 88)
    for t, notes in enumerate(steps):
        x[t + 1, 0, [midi - 21 for midi in notes]] = 1
    with torch.no_grad():
        return model(x)[0][-1, 0]


def steps_of(page) -> list[dict]:
    return page.evaluate("kru.chorale.steps()")


def test_a_chorale_by_keyboard_alone(open_page, music) -> None:
    page = open_page()
    page.locator("#wipe").focus()
    page.keyboard.press("Enter")
    assert steps_of(page) == []
    page.locator("#piano button[tabindex='0']").focus()
    for letter in "zcb":
        page.keyboard.down(letter)
    for letter in "zcb":
        page.keyboard.up(letter)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    steps = steps_of(page)
    assert steps[0] == {"notes": [48, 52, 55], "owner": "yours"}
    assert steps[-1] == {"notes": [61], "owner": "yours"}
    found = page.evaluate("Array.from(kru.chorale.outputs())")
    expected = logits(music, [step["notes"] for step in steps]).numpy()
    # Eight bits for the matrices: not the last digit, but the same expectation.
    probability = [1 / (1 + np.exp(-np.array(values))) for values in (found, expected)]
    np.testing.assert_allclose(*probability, rtol=0, atol=0.03)

    page.locator("#tempo").fill("160")
    page.locator("#go").focus()
    page.keyboard.press("Enter")
    more = len(steps) + 3
    page.locator("#undo:enabled").wait_for()
    while len(steps_of(page)) < more:
        page.wait_for_timeout(50)
    page.keyboard.press("Escape")
    added = steps_of(page)[len(steps) :]
    assert all(step["owner"] == "its" and len(set(step["notes"])) == 4 for step in added)
    page.locator("#undo").click()
    assert steps_of(page) == steps


def test_keys_of_the_piano_are_played_by_touch(open_page) -> None:
    page = open_page(390, 844, has_touch=True, is_mobile=True)
    before = len(steps_of(page))
    page.locator("#piano button[data-midi='64']").tap()
    assert steps_of(page)[before:] == [{"notes": [64], "owner": "yours"}]
    # A touch that turns into scrolling plays nothing.
    page.evaluate(
        """() => {
          const key = document.querySelector("#piano button[data-midi='67']");
          const touch = { bubbles: true, pointerId: 7, pointerType: "touch" };
          key.dispatchEvent(new PointerEvent("pointerdown", touch));
          key.dispatchEvent(new PointerEvent("pointercancel", touch));
        }"""
    )
    assert len(steps_of(page)) == before + 1


def test_it_plays_to_the_end(open_page) -> None:
    page = open_page()
    page.locator("#tempo").fill("160")
    page.locator("#replay").click()
    page.locator("#music-status", has_text="End.").wait_for(state="attached")
    assert page.locator("#piano .its, #piano .yours").count() == 0
    assert page.locator("#replay").inner_text() == "Play all"
