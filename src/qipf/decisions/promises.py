"""What a decision may promise, read from a short text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

from qipf._common.errors import check_probability

Kind = Literal["error", "loss", "accept"]
_TEXT = re.compile(r"\s*(error|loss|accept)\s*(<=|>=|=)\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*(%?)\s*")
_RELATION = {"error": "<=", "loss": "<=", "accept": ">="}


@dataclass(frozen=True)
class Promise:
    """A promise about the predictions that are accepted.

    Attributes:
        kind: "error": at most `limit` of the accepted predictions are wrong. "loss": their mean loss, in [0, 1], is at
            most `limit`. "accept": the share `limit` of the traffic is accepted.
        limit: the share or the mean loss, strictly between 0 and 1.
        confidence: with which probability over the draw of the held-out data the promise holds; for "accept", which
            holds on average over that draw, the confidence of the intervals that are reported with it.
    """

    kind: Kind
    limit: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.limit < 1:
            raise ValueError(f"promise: expected a share between 0 and 1, got {self.limit:g}")
        check_probability("confidence", self.confidence)

    @classmethod
    def parse(cls, text: str, confidence: float = 0.95) -> Self:
        """A promise from a text such as "error<=0.01", "error<=1%", "loss<=0.05" or "accept>=0.9".

        Raises:
            ValueError: the text is not one of these.
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None or found[2] not in ("=", _RELATION[found[1]]):
            raise ValueError(f"promise: expected a text such as error<=0.01, loss<=0.05 or accept>=0.9, got {text!r}")
        limit = float(found[3]) / (100 if found[4] else 1)
        return cls(found[1], limit, confidence)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        return f"{self.kind}{_RELATION[self.kind]}{self.limit:g}"
