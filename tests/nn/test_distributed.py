"""Data parallel training with two processes."""

import os
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = """
import os
import sys
from pathlib import Path

import torch
import kru

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(rank)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kru = kru.KRU(3, 6)
        self.exact = kru.KRU(12, 6, constraint="exact")
        self.lstm = kru.KRULSTM(12, 6, train_recurrent=False)

    def forward(self, x):
        return self.lstm(self.exact(self.kru(x)[0])[0])[0]


model = Model()
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = kru.optimizer(model, "adam", lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    loss = parallel(torch.randn(4, 2, 3)).square().sum() + 0.1 * kru.unitary_penalty(model)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), Path(sys.argv[1]) / f"{rank}.pt")
torch.distributed.destroy_process_group()
# `parallel` holds on to the group, whose threads would now and then abort an interpreter that ends as usual.
os._exit(0)
"""


def test_two_processes_keep_the_same_weights(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [*command, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
