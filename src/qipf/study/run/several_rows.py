"""The predictions of a model that makes several per input, read as the plan says that they are meant."""

from __future__ import annotations

from typing import Any

from qipf.models.kinds.predictions import PredictionRows, read_predictions
from qipf.models.kinds.token_labels import FEW_IDS, share_of_ids, shifted_already
from qipf.study.plan.predicts import OF_TOKENS
from qipf.study.run.study_data import Split, StudyData


def kind_of(data: StudyData) -> str:
    """What `read_predictions` calls the kind of these predictions."""
    return "tokens" if data.predicts in OF_TOKENS else data.predicts


def read_rows(data: StudyData, net: Any, split: Split, **read: Any) -> PredictionRows:
    """The predictions for inputs like those of `data`.

    Args:
        data: what the predictions are about.
        net: the network.
        split: the inputs and labels.
        read: as for `read_predictions`.
    """
    shift = OF_TOKENS.get(data.predicts)
    return read_predictions(kind_of(data), net, split, len(split.inputs), shift=shift, **read)


def check_ids(split: Split, predicts: str) -> None:
    """Raise ValueError where the next token is to be predicted and the labels are not the ids of the tokens."""
    if predicts != "tokens":
        return
    inputs, labels = split
    known = labels >= 0
    if bool(known.any()) and (share := share_of_ids([inputs], labels, known)) < FEW_IDS:
        if shifted_already([inputs], labels, known):
            raise ValueError('the labels are the token ids of the next places, shifted already; set predicts = "tags"')
        raise ValueError(
            f"only {share:.0%} of the labels are the token ids of their places, as where the next token is predicted; "
            'set predicts = "tags" if each label is about the token in its place'
        )
