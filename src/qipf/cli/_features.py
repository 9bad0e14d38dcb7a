"""Which module's output a scorer reads: noted in its file, so that scoring reads the same one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qipf._common.text import printable
from qipf.scores.fitted import Fitted

if TYPE_CHECKING:
    from qipf.scores import Scorer

FACT = "features_from"
"""The name of the note among the facts of a fitted scorer."""


def note_features(scorer: Scorer, features: str | None) -> None:
    """Note the module that --features named, where the scorer reads features."""
    if features is not None and scorer.reads_features and scorer.fitted is not None:
        scorer._use(Fitted(scorer.fitted.tensors, {**scorer.fitted.facts, FACT: features}))


def noted_features(scorer: Scorer, features: str | None) -> str | None:
    """The module to read: the one that --features names, or else the one that the scorer was fitted to.

    Another name than the noted one draws a warning and no error: the same tensor has another name in an .onnx file.
    """
    noted = scorer.fitted.facts.get(FACT) if scorer.fitted else None
    if features is None or noted is None or features == noted:
        return features or noted
    print(
        f"warning: --features: the scorer was fitted to the output of {printable(noted)!r}, and these are of "
        f"{printable(features)!r}; if they are not the same numbers, the scores mean nothing",
        file=sys.stderr,
    )
    return features
