#!/usr/bin/env python3
"""Makes convert/tests/data/distcp: a checkpoint of torch.distributed.checkpoint, saved by three
processes as torchtitan and flame do, for convert/tests/test_distcp.py.

    python tests/tools/make-distcp.py

Needs torch (made with 2.15.0), which no test does.
"""

import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

FOLDER = Path(__file__).resolve().parents[2] / "convert/tests/data/distcp"
PROCESSES = 3


def save(rank: int, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,))

    def shard(x):
        return distribute_tensor(x, mesh, [Shard(0)])

    weights = {
        "model.layers.0.w": shard(torch.arange(35.0).reshape(7, 5)/8),     # 3, 3 and 1 rows
        "lm_head.weight": shard(-torch.arange(6.0).reshape(2, 3)),         # one process has none
        "bias": shard(torch.arange(4.0).bfloat16()/2),
        "whole": torch.arange(3.0).half(),                                 # the same everywhere
    }
    optimizer = {"state": {"bias": {"exp_avg": shard(torch.ones(4)), "step": torch.tensor(3.0)}},
                 "param_groups": [{"lr": 0.1, "params": [0]}]}
    dcp.save({"model": weights, "optimizer": optimizer, "train_state": {"step": torch.tensor(5)}},
             checkpoint_id=Path(FOLDER.name))
    dist.destroy_process_group()


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.chdir(FOLDER.parent)                # the name that was passed is in the file
    mp.spawn(save, args=("29611",), nprocs=PROCESSES)
