"""Parameters sharded over two processes by `fully_shard`, against one process with all of them."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = '''
import copy
import os

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import kru

LAYERS = {
    "KRU": lambda **given: kru.KRU(3, 6, **given),
    "exact": lambda **given: kru.KRU(3, 6, constraint="exact", **given),
    "sum": lambda **given: kru.KRU(3, 6, rank=3, **given),
    "LSTM": lambda **given: kru.KRULSTM(3, 6, 2, **given),
    "GRU": lambda **given: kru.KRUGRU(3, 6, **given),
    "RC uRNN": lambda **given: kru.baselines.RCURNN(3, 6, **given),
    "FC uRNN": lambda **given: kru.baselines.FCURNN(3, 6, **given),
    "oRNN": lambda **given: kru.baselines.ORNN(3, 6, **given),
    "EURNN": lambda **given: kru.baselines.EURNN(3, 6, **given),
    "expRNN": lambda **given: kru.baselines.ExpRNN(3, 6, **given),
    "AntisymmetricRNN": lambda **given: kru.baselines.AntisymmetricRNN(3, 6, **given),
    "LRU": lambda **given: kru.baselines.LRU(3, 6, **given),
    "HyperLSTM": lambda **given: kru.baselines.HyperLSTM(3, 6, **given),
}


class Network(nn.Module):
    def __init__(self, build, **given):
        super().__init__()
        self.rnn = build(**given)
        self.linear = kru.KroneckerLinear(self.rnn.output_size, 4, **given)

    def forward(self, x):
        return self.linear(self.rnn(x)[0])


def full(model):
    return {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        for name, tensor in model.state_dict().items()
    }


def shard(model):
    fully_shard(model.rnn)
    fully_shard(model)
    kinds = {type(parameter).__name__ for parameter in model.parameters()}
    assert kinds == {"DTensor"}, kinds


def expect_same(name, model, alone, **tolerance):
    expected = full(alone)
    for key, tensor in full(model).items():
        torch.testing.assert_close(tensor, expected[key], msg=lambda text: f"{name}: {key}: {text}", **tolerance)


def compare(name, build):
    torch.manual_seed(0)
    alone = Network(build, dtype=torch.float64)
    with torch.no_grad():
        for parameter in alone.rnn.parameters():
            if name != "FC uRNN":
                parameter.add_(0.1 * torch.randn_like(parameter))
    model = copy.deepcopy(alone)
    shard(model)
    data = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    steps = [kru.optimizer(each, "adam", lr=0.01) for each in (alone, model)]
    rank = torch.distributed.get_rank()
    for step in range(3):
        for each, optimizer in zip((alone, model), steps, strict=True):
            optimizer.zero_grad()
            # Before the forward pass parameters are sharded; after it those of the outermost module are whole.
            before = kru.unitary_penalty(each)
            if each is alone:
                loss = sum(each(part).square().mean() for part in data) / 2
            else:
                loss = each(data[rank]).square().mean()
            (loss + 0.1 * before + 0.2 * kru.unitary_penalty(each)).backward()
            optimizer.step()
        expect_same(f"{name}, step {step}", model, alone)
    torch.testing.assert_close(kru.unitary_penalty(model), kru.unitary_penalty(alone))
    gate = alone.rnn.gates[0] if len(alone.rnn.gates) > 1 else None
    for find in (
        lambda each: kru.spectrum(each.rnn, gate=gate, dense=True).singular_values,
        lambda each: kru.spectrum(each.linear).singular_values,
    ):
        torch.testing.assert_close(find(model), find(alone))
    assert kru.parameter_count(model) == kru.parameter_count(alone)
    if name == "FC uRNN":
        assert kru.spectrum(model.rnn).distance_from_unitary < 1e-12
    reset(name, build)


def reset(name, build):
    """Built without values, sharded, then drawn."""
    model = Network(build, device="meta")
    shard(model)
    model.to_empty(device="cpu")
    alone = Network(build)
    for each in (model, alone):
        torch.manual_seed(1)
        each.rnn.reset_parameters()
        each.linear.reset_parameters()
    expect_same(f"{name}, reset", model, alone, rtol=0, atol=0)


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
for name, build in LAYERS.items():
    compare(name, build)
torch.distributed.destroy_process_group()
# The group's threads would now and then abort an interpreter that ends as usual.
print("done", flush=True)
os._exit(0)
'''


def test_sharded_parameters_train_as_whole_ones(tmp_path: Path) -> None:
    script = tmp_path / "sharded.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [*command, str(script)], env=environment, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("done") == 2
