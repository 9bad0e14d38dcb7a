"""Token ids in small types: bytes with two dimensions are a table, which is scaled to [0, 1], or ids, which are not."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from qipf.data.reading import INPUT, Data
from qipf.models.keys import MASK
from qipf.models.labels import zeros_and_ones


def with_ids(net: Any, data: Data, tokens: bool) -> Data:
    """The data for a torch module, with ids in small types as whole numbers of 64 bits where the module needs that.

    An embedding takes whole numbers of 32 or 64 bits and nothing else. Bytes are ids where the scorer or the labels say
    so, where an embedding of the module is asked for them, or where it runs with ids alone.

    Args:
        net: The module.
        data: Its inputs.
        tokens: Whether the scorer was fitted to tokens.
    """
    small = [key for key, values in data.arrays.items() if _may_be_ids(key, values)]
    if not small:
        return data
    ids = replace(data, ids=tuple(small))
    if tokens or _are_labels(data, small) or _looks_up(net, ids):
        # A module that takes ids of 0 takes ids: one that it does not know is a mistake in DATA, not a reason to scale.
        found = ids if _runs(net, ids) or _runs(net, _filled(ids, 0)) else data
    else:
        found = next((one for one in (data, ids) if _runs(net, one)), data)
    if found is ids and any(data.arrays[key].dtype == np.uint8 for key in small):
        print(
            "note: the bytes of DATA are read as token ids, as this model takes them; if they are the numbers of a "
            "table, save them as floating-point numbers",
            file=sys.stderr,
        )
    return found


def _may_be_ids(key: str, values: np.ndarray) -> bool:
    inputs = key == "inputs" or (key.startswith(INPUT) and key != INPUT + MASK)
    return inputs and values.ndim == 2 and values.dtype.kind in "iu" and values.dtype not in (np.int32, np.int64)


def _are_labels(data: Data, keys: list[str]) -> bool:
    """Whether there is one label per place, which are not several labels of 0 and 1."""
    labels = data.arrays.get("labels")
    if labels is None or labels.dtype.kind not in "iu" or zeros_and_ones(np.asarray(labels)):
        return False
    return any(data.arrays[key].shape == labels.shape for key in keys)


def _filled(data: Data, value: int) -> Data:
    """The first two examples with the same id in every place."""
    few = data.take(np.arange(min(2, len(data))))
    return replace(few, arrays=few.arrays | {key: np.full_like(few.arrays[key], value) for key in data.ids})


def _looks_up(net: Any, data: Data) -> bool:
    """Whether an embedding of the module is asked for what stands in the data, and not only for numbers of columns."""
    from torch import nn

    tables = [module for module in net.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    asked: list[list[Any]] = []
    for value in (0, 1) if tables else ():
        seen: list[Any] = []
        hooks = [one.register_forward_pre_hook(partial(_keep, seen), with_kwargs=True) for one in tables]
        try:
            _runs(net, _filled(data, value), eager=True)
        finally:
            for hook in hooks:
                hook.remove()
        asked.append([values.tolist() for values in seen])
    return len(asked) == 2 and asked[0] != asked[1]


def _keep(seen: list[Any], _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Keep the tensors that a module is given."""
    seen += [values for values in (*given, *named.values()) if hasattr(values, "tolist")]


def _runs(net: Any, data: Data, eager: bool = False) -> bool:
    """Whether the module can read the first two examples."""
    from qipf.models.batches import Batches
    from qipf.models.calling import call
    from qipf.models.state import input_device, untouched

    batch = next(data.take(np.arange(min(2, len(data)))).batches(2))
    try:
        with untouched(net, eager=eager):
            (first,) = Batches([batch.tensors()], 2, net, input_device(net, None))
            call(net, first.arguments, first.keywords)
    except Exception:  # whatever the user's code raises
        return False
    return True
