"""Strokes of a pen that would draw a given picture: its ink, thinned to lines one pixel wide, and followed."""

import numpy as np
from numpy.typing import NDArray

Stroke = list[tuple[float, float]]
AROUND = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]


def thin(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Zhang and Suen's thinning: take away the border, in two alternating passes, while all stays connected."""
    ink = np.pad(ink, 1)
    changed = True
    while changed:
        changed = False
        for odd in (False, True):
            p = np.stack([np.roll(ink, (-dy, -dx), (0, 1)) for dy, dx in AROUND])
            neighbours = p.sum(0)
            rises = (~p & np.roll(p, -1, 0)).sum(0)
            north, east, south, west = p[0], p[2], p[4], p[6]
            keeps = (north & west & (east | south)) if odd else (east & south & (north | west))
            border = ink & (neighbours >= 2) & (neighbours <= 6) & (rises == 1) & ~keeps
            if border.any():
                ink, changed = ink & ~border, True
    return ink[1:-1, 1:-1]


def strokes_of(image: NDArray[np.uint8]) -> list[Stroke]:
    """Lists of points (x, y) in a square of side 1; `image` is (28, 28)."""
    left = {(int(y), int(x)) for y, x in np.argwhere(thin(image > 100))}
    strokes = []
    while left:
        ends = [point for point in left if len(_near(point, left)) == 1]
        point = min(ends or left)
        stroke = [point]
        left.discard(point)
        while near := _near(point, left):
            # Straight on where lines cross.
            before = stroke[-2] if len(stroke) > 1 else point
            ahead = (2 * point[0] - before[0], 2 * point[1] - before[1])
            point = min(near, key=lambda q: (q[0] - ahead[0]) ** 2 + (q[1] - ahead[1]) ** 2)
            stroke.append(point)
            left.discard(point)
        strokes.append(stroke)
    # The thinning leaves short spurs; a digit of one pixel does not exist.
    kept = [stroke for stroke in strokes if len(stroke) > 2] or strokes
    return [[((x + 0.5) / 28, (y + 0.5) / 28) for y, x in stroke] for stroke in kept]


def _near(point: tuple[int, int], among: set[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(point[0] + dy, point[1] + dx) for dy, dx in AROUND if (point[0] + dy, point[1] + dx) in among]
