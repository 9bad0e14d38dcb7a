"""Notice probabilities that were given in the place of logits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from qipf.arrays import Array, is_traced, namespace

PROBABILITIES = (
    "logits: these look like probabilities, not logits; give what goes into the softmax (or the sigmoid), or the "
    "logarithm of the probabilities: numpy.log(numpy.clip(p, 1e-7, 1)), for one column numpy.log(p / (1 - p))"
)


@contextmanager
def numbers_expected(known: bool) -> Iterator[None]:
    """No warning about probabilities where the outputs are `known` to be the numbers of a regression."""
    with warnings.catch_warnings():
        if known:
            warnings.filterwarnings("ignore", message="logits: these look like probabilities")
        yield


def look_like_probabilities(logits: Array, binary: bool) -> bool:
    """Whether every row is non-negative and sums to one; for a binary classifier, whether all values lie in [0, 1].

    Args:
        logits: (N, C).
        binary: whether one column belongs to a classifier. Then at least ten rows are asked for, since few logits may
            lie in [0, 1] by chance.
    """
    rows, columns = logits.shape
    if is_traced(logits) or rows == 0 or (columns == 1 and (not binary or rows < 10)):
        return False
    # of almost all logits the first row is enough
    return _in_unit(logits[:1, :]) and (rows == 1 or _in_unit(logits))


def _in_unit(logits: Array) -> bool:
    xp = namespace(logits)
    if not xp.isdtype(logits.dtype, "real floating") or not bool(xp.all((logits >= 0) & (logits <= 1))):
        return False
    if logits.shape[1] == 1:
        return True
    tolerance = 1e-3 if xp.finfo(logits.dtype).bits >= 32 else 2e-2
    sums = xp.sum(xp.astype(logits, xp.float32), axis=1) if tolerance > 1e-3 else xp.sum(logits, axis=1)
    return bool(xp.all(xp.abs(sums - 1) < tolerance))
