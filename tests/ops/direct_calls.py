"""A script: call the operators with arguments that do not belong together.

It prints how many calls gave a result and how many an exception.
"""

import itertools
import random

import torch

import kru  # noqa: F401 (registers the operators)

K, r = torch.ops.kru, torch.randn
rng = random.Random(0)
eye = [torch.eye(2), torch.eye(3)]
good = {
    "dstates": r(5, 4, 6),
    "dh": r(4, 6),
    "dc": None,
    "x": r(5, 4, 2),
    "weight": r(6, 2),
    "factors": eye,
    "bias": r(6),
    "recurrent_bias": None,
    "h0": r(4, 6),
    "c0": None,
    "lengths": torch.tensor([5, 0, 3, 1]),
    "leak": None,
    "reset": None,
    "initial": None,
    "states": r(5, 4, 6),
    "reserve": r(0),
    "cells": r(0),
    "cell": "elman",
    "nonlinearity": "tanh",
    "is_complex": False,
    "reverse": False,
    "every": 0,
    "need_states": True,
    "wants": [True, True, True, False, True, False, False, False, True, True],
}
gates = [torch.eye(2).repeat(4, 1, 1), torch.eye(3).repeat(4, 1, 1)]
lstm = {
    **good,
    "cell": "lstm",
    "factors": gates,
    "weight": r(24, 2),
    "bias": r(24),
    "dc": r(4, 6),
    "c0": r(4, 6),
    "reserve": r(5, 4, 24),
    "cells": r(5, 4, 6),
    "wants": [True, True, True, False, True, True, False, False, True, True],
}
gru = {
    **good,
    "cell": "gru",
    "factors": [g[:3] for g in gates],
    "weight": r(18, 2),
    "bias": r(18),
    "reserve": r(5, 4, 18),
    "cells": r(5, 4, 6),
    "recurrent_bias": r(6),
    "wants": [True, True, True, True, True, False, False, False, True, True],
}
leaky = {
    **good,
    "leak": torch.rand(6),
    "reset": torch.rand(5, 4) < 0.5,
    "initial": r(6),
    "wants": [True, True, True, False, True, False, True, True, True, True],
}
large = {**good, "nonlinearity": "modrelu", "x": r(5, 4, 20), "weight": r(6, 20), "reserve": r(5, 4, 6)}
tensors = [
    r(0),
    r(1),
    r(6),
    torch.tensor(1.0),
    r(4, 6),
    r(5, 4, 6),
    r(5000, 4, 6),
    r(5000, 4, 2),
    r(5, 4000, 2),
    r(4000, 6),
    r(24, 2),
    r(6, 2000),
    r(5, 4, 2).double(),
    r(5, 4, 6).half(),
    torch.full((5, 4), 10**9),
    torch.full((4,), 10**9),
    torch.full((4,), -(10**9)),
    torch.zeros(5, 4).long(),
    torch.ones(5, 4).bool(),
    torch.ones(4, 5).bool().t(),
    torch.ones(5, 4000).bool(),
    r(5, 4, 6).to(torch.complex64),
    r(4, 5, 6).transpose(0, 1),
    torch.ones(4, 6, device="meta"),
    torch.ones(4, device="meta").long(),
    r(5, 4, 6).to_sparse(),
    None,
]
values = {
    "factors": [
        [],
        eye[:1],
        [torch.eye(2000)],
        [r(6)],
        [r(2, 3), r(3, 2)],
        gates,
        [torch.eye(2).double(), torch.eye(3)],
    ],
    "cell": ["elman", "lstm", "gru", "", "x"],
    "nonlinearity": ["identity", "tanh", "relu", "leaky_relu", "modrelu", "x"],
    "is_complex": [True],
    "reverse": [True],
    "every": [1, 3, 5, 6, 2**62, -1],
    "need_states": [False],
    "wants": [[], [True] * 9, [True] * 10, [False] * 10],
}
passed = refused = 0


def attempt(function, *arguments) -> None:
    global passed, refused
    try:
        function(*arguments)
        passed += 1
    except Exception:
        refused += 1


for base in (good, lstm, gru, leaky, large):
    K.scan_backward(*base.values())
    names = list(base)
    for name in names:
        for value in values.get(name, tensors):
            attempt(K.scan_backward, *{**base, name: value}.values())
    for _ in range(150):
        changes = {name: rng.choice(values.get(name, tensors)) for name in rng.sample(names, 2)}
        attempt(K.scan_backward, *{**base, **changes}.values())
    forward = {name: base[name] for name in names[3:14] + names[17:23]}
    K.scan(*forward.values(), True)
    for name in forward:
        for value in values.get(name, tensors):
            attempt(K.scan, *{**forward, name: value}.values(), rng.random() < 0.5)
x, dy = r(4000, 6), r(4000, 6)
K.kron_matmul_backward(dy, x, eye, [True] * 3)
for a, b, factors, wants in itertools.product(
    [dy, r(4000, 7), *tensors], [x, *tensors], [eye, *values["factors"]], [[True] * 3, [False] * 3, [True]]
):
    attempt(K.kron_matmul_backward, a, b, factors, wants)
    if wants == [True]:
        attempt(K.kron_matmul, b, factors)

# Rotations of two pairs at distance 2, a diagonal, a Fourier transform, a reflection and a permutation of 4 units.
chain = {
    "dstates": r(5, 4, 8),
    "dh": r(4, 8),
    "x": r(5, 4, 3),
    "weight": r(8, 3),
    "bias": r(4),
    "h0": r(4, 8),
    "lengths": torch.tensor([5, 0, 3, 1]),
    "states": r(5, 4, 8),
    "tensors": [*r(2, 2), *(torch.complex(r(size), r(size)) for size in (2, 4, 4)), torch.randperm(4)],
    "program": [4, 0, 2, 0, 2, 1, 1, 3],
    "reverse": False,
    "wants": [True] * 9 + [False],
}
symbols = {**chain, "x": torch.ones(500, 4).long(), "states": r(500, 4, 8), "dstates": r(500, 4, 8)}
symbols |= {"wants": [False] + [True] * 8 + [False]}
part = {**chain, "x": r(5, 4, 8), "weight": None, "wants": [True, False] + [True] * 7 + [False]}
others = {
    "tensors": [
        [],
        chain["tensors"][:-1],
        chain["tensors"] * 2,
        [t[:1] for t in chain["tensors"]],
        [t.to(torch.complex128) for t in chain["tensors"]],
        [*chain["tensors"][:-1], torch.full((4,), 10**9)],
        [*chain["tensors"][:-1], torch.zeros(4).long()],
        chain["tensors"][::-1],
    ],
    "program": [
        [],
        [4],
        [-1],
        [5],
        [10**12],
        [0] * 6,
        [4, 0, 2, 0, 2, 1, 1],
        [4, -4, 2, 0, 2, 1, 1, 3],
        [4, 10**15, 2, 0, 2, 1, 1, 3],
        [4, 0, 0, 0, 2, 1, 1, 3],
        [4, 0, -2, 0, 2, 1, 1, 3],
        [4, 2**62, 2**62, 0, 2, 1, 1, 3],
    ],
    "reverse": [True],
    "wants": [[], [True] * 10, [True] * 9, [False] * 10, [True] + [False] * 9, [True] * 99],
}
tensors += [
    r(500, 4, 8),
    r(4000, 8),
    r(8, 3000),
    r(3),
    torch.ones(4).bool(),
    torch.ones(4) + 0j,
    torch.ones(4).int(),
]
for base in (chain, symbols, part):
    K.chain_scan_backward(*base.values())
    names = list(base)
    for name in names:
        for value in others.get(name, tensors):
            attempt(K.chain_scan_backward, *{**base, name: value}.values())
    for _ in range(300):
        changes = {name: rng.choice(others.get(name, tensors)) for name in rng.sample(names, 2)}
        attempt(K.chain_scan_backward, *{**base, **changes}.values())
    forward = {name: base[name] for name in names[2:7] + names[8:11]}
    K.chain_scan(*forward.values())
    for name in forward:
        for value in others.get(name, tensors):
            attempt(K.chain_scan, *{**forward, name: value}.values())
print(passed, refused)
