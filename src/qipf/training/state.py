"""Save the state of a training run to a safetensors file, and resume from it exactly."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.files import atomic_write
from qipf._common.optional import read_safetensors, require

_FORMAT = "qipf-training-2"


def data_checksum(inputs: Tensor, targets: Tensor) -> int:
    """Return a checksum that identifies a training set."""
    crc = 0
    for tensor in (inputs, targets):
        values = tensor.detach().cpu().contiguous()
        crc = zlib.crc32(values.numpy().data.cast("B"), crc)
    return crc


def save_state(
    path: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    *,
    epoch: int,
    settings: dict[str, Any],
    device: torch.device,
) -> None:
    """Write the state from which the next epoch can start."""
    safetensors = require("safetensors.torch", extra="torch")
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    tensors["generator"] = generator.get_state()
    tensors["rng"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(device)
    header = {"format": _FORMAT, "epoch": str(epoch), "settings": json.dumps(settings)}
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header["sha256"] = _checksum(header, copies)
    atomic_write(path, safetensors.save(copies, metadata=header))


def load_state(
    path: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    *,
    settings: dict[str, Any],
    device: torch.device,
) -> int:
    """Restore a state written by `save_state`, and return the number of completed epochs.

    Raises:
        ValueError: The file is damaged, is not a checkpoint, or belongs to another run.
    """
    header, tensors = read_state(path)
    found = json.loads(header["settings"])
    different = [
        f"{key} was {found.get(key)!r} and is now {settings[key]!r}"
        for key in settings
        if found.get(key) != settings[key]
    ]
    if different:
        raise ValueError(
            f"{path} is the checkpoint of another run ({'; '.join(different)}); "
            "use the settings of that run, remove the file, or choose another file"
        )
    net.load_state_dict({name.removeprefix("net."): t for name, t in tensors.items() if name.startswith("net.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, values in optimizer.state.items():  # channels-last parameters need channels-last optimiser states
        for key, value in values.items():
            if value.shape == parameter.shape:
                values[key] = torch.empty_like(parameter).copy_(value)
    generator.set_state(tensors["generator"])
    torch.set_rng_state(tensors["rng"])
    if device.type == "cuda" and "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"], device)
    return int(header["epoch"])


def _checksum(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    found = hashlib.sha256(json.dumps([header["format"], header["epoch"], header["settings"]]).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def read_state(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the header and the tensors of a file; raise ValueError if `save_state` did not write it."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the path of a file")
    safetensors = require("safetensors", extra="torch")
    try:
        header, tensors = read_safetensors(path, "pt")
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or not a checkpoint ({error}); remove it to start again, or choose another file"
        ) from None
    if header.get("format") != _FORMAT:
        raise ValueError(
            f"{path}: expected a training checkpoint of format {_FORMAT!r}, got format {header.get('format')!r}"
        )
    if header.keys() != {"format", "epoch", "settings", "sha256"} or header["sha256"] != _checksum(header, tensors):
        raise ValueError(f"{path} is damaged (its checksum does not match its content); remove it to start again")
    return header, tensors
