"""What the labels of tokens are about: the next token, or the token in the same place."""

from __future__ import annotations

from typing import Literal

import numpy as np

from qipf._common.errors import Problem, UserError
from qipf.data.reading import INPUT, Data
from qipf.models.keys import MASK
from qipf.models.kinds.token_labels import FEW_IDS, share_of_ids, shifted_already

About = Literal["next", "own"]
IGNORE = -100


def check_about(about: About | None, kind: str) -> None:
    """Raise UserError where --token-labels was given for something other than tokens."""
    if about is not None and kind != "tokens":
        raise UserError(f"--token-labels: is about tokens, and DATA has the labels of {kind}; leave it out")


def is_shifted(data: Data, about: About | None) -> bool:
    """Whether the label of a place belongs to the logits of the place before, as where the labels are the token ids.

    Raises:
        Problem: The labels are not the ids, and nothing says what they are about; or they are shifted already.
    """
    if about == "own":
        return False
    labels = np.asarray(data.arrays["labels"])
    known = labels != IGNORE
    mask = data.arrays.get(INPUT + MASK)
    if mask is not None and mask.shape == labels.shape:
        known = known & (np.asarray(mask) != 0)
    if not known.any():
        return True
    inputs = [np.asarray(array) for key, array in data.arrays.items() if key == "inputs" or key.startswith(INPUT)]
    share = share_of_ids(inputs, labels, known)
    if share < FEW_IDS and shifted_already(inputs, labels, known):
        raise Problem(
            "data",
            "the labels are the token ids of the next places, so they are shifted already; give --token-labels own",
        )
    if about is None and share < FEW_IDS:
        raise Problem(
            "data",
            f"only {share:.0%} of the labels are the token ids of their places; give --token-labels own if each label "
            "is about the token in its place, or --token-labels next if the logits of the place before predict it",
        )
    return True
