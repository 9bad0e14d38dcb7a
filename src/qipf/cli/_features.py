"""Which module or output a scorer reads: noted in its file, so that scoring reads the same one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from qipf._common.errors import InputError, UserError
from qipf._common.text import printable
from qipf.models.likeness import OUTPUT
from qipf.models.sessions.model import OnnxModel
from qipf.scores.base import Fitted

if TYPE_CHECKING:
    from qipf.scores import Scorer

FACT = "features"
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


def noted_output(scorer: Scorer, net: Any, given: str | None) -> Any:
    """The ONNX model that reads the output which the scorer was fitted to; other models as they are.

    Raises:
        UserError: Another output was given.
        InputError: The model has several outputs, and none of this name.
    """
    noted = scorer.fitted.facts.get(OUTPUT) if scorer.fitted else None
    if noted is None or not isinstance(net, OnnxModel) or noted == net.output:
        return net
    if given is not None:
        raise UserError(
            f"--onnx-output: the scorer was fitted to the output {printable(noted)!r}, not to {given!r}; leave it out, "
            "or fit a scorer to that output"
        )
    if len(net.floating) == 1:  # no other one can be meant
        return net
    if noted not in net.floating:
        raise InputError(
            f"--model: the scorer was fitted to the output {printable(noted)!r}, and {net.path} has "
            f"{', '.join(map(repr, net.floating))}; give that model, or fit a scorer to this one"
        )
    return OnnxModel(net.path, output=noted)
