"""Each process sketches its shard of the weights; merged, all of them have the field of one process."""

from __future__ import annotations

import socket

import numpy as np
import pytest
import torch.distributed as dist
import torch.multiprocessing as processes

from qipf.fields.sketch import FieldSketch


def weights() -> np.ndarray:
    generator = np.random.default_rng(9)
    return np.concatenate([generator.standard_normal(30_000), [12.0, -15.0]])


def _work(rank: int, port: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    shard = weights()[:7_000] if rank == 0 else weights()[7_000:]
    field = FieldSketch(factor=10).add(shard).merge_ranks().finish()
    np.savez(f"{folder}/{rank}.npz", **field.state())
    dist.destroy_process_group()


@pytest.mark.thorough
def test_two_processes_equal_one(tmp_path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(_work, (port, str(tmp_path)), nprocs=2)
    one = FieldSketch(factor=10).add(weights()).finish().state()
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert set(found) == set(one)
            for name, values in one.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
