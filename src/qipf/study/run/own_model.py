"""A user's own model: loading it, and making sure that it is the model that the plan was made with."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf.study.run.digests import ChangedError, file_digest, short, unchanged
from qipf.study.run.own_source import module_digest

FILES = (".pt2", ".h5")
"""The endings of files that hold a whole network."""
_PINNED = "__qipf_module_digest__"
"""Attribute of an imported module: the digest of its source when this process first built a network from it."""


def load(model: str, weights: str | None, expected: Mapping[str, Any] | None = None) -> nn.Module:
    """Load the model. This runs the user's code, with a fixed seed, so that every process gets the same network.

    Args:
        model: "file.pt2", "file.h5" (a sequential Keras network) or "module:callable".
        weights: a safetensors file for "module:callable", or None.
        expected: what `digests` returned for the plan; None to skip the check.

    Raises:
        ChangedError: the model differs from the one of the plan.
    """
    program = model.endswith(FILES)
    wanted = expected or {}
    with unchanged(weights, wanted.get("weights")), unchanged(model if program else None, wanted.get("model")):
        net = _build(model, weights)
    if expected is not None and not program:
        found = _network_digest(model, net)
        if found != expected["model"]:
            raise ChangedError(
                f"the model {model} is not the one of the plan (digest {short(found)}, expected "
                f"{short(expected['model'])}): its source or its weights differ"
            )
    return net


def digests(model: str, weights: str | None) -> dict[str, str | None]:
    """What identifies the model: digests of its files or, for "module:callable", of the source and all tensors.

    The source is that of the module and of the files in its folder that it imports.

    A model that cannot be built is identified by its name alone: its cell will fail and say why.
    """
    of_weights = None if weights is None else file_digest(weights)
    if model.endswith(FILES):
        return {"model": file_digest(model), "weights": of_weights}
    try:
        return {"model": _network_digest(model, _build(model, weights)), "weights": of_weights}
    except Exception:  # whatever the user's code raises
        return {"model": model, "weights": of_weights}


def _build(model: str, weights: str | None) -> nn.Module:
    from qipf.models.loading import load_model

    if model.endswith(".h5"):
        from qipf.models.keras_files import load_keras

        return load_keras(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = load_model(model, None if weights is None else Path(weights))
    if not model.endswith(".pt2"):  # an exported program has no training mode
        net.eval()
    return net


def _network_digest(model: str, net: nn.Module) -> str:
    found = hashlib.sha256(f"{model} {_pinned_digest(model.partition(':')[0])}".encode())
    for name, value in net.state_dict().items():
        found.update(f"{name} {getattr(value, 'dtype', type(value))} {getattr(value, 'shape', '')}".encode())
        if isinstance(value, Tensor):
            found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            found.update(repr(value).encode())
    return found.hexdigest()


def _pinned_digest(name: str) -> str:
    """The digest of a module's source, and of its helpers beside it, as this process imported them.

    It is kept with the module: a process that lives longer than an edit of the file still runs the old source.
    """
    module = sys.modules[name]
    if _PINNED not in vars(module):
        source = getattr(module, "__file__", None)
        setattr(module, _PINNED, "" if source is None else module_digest(name, Path(source)))
    return vars(module)[_PINNED]
