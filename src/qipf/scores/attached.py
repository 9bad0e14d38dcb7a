"""What travels with a fitted scorer: probabilities of error, a decision, prediction sets, intervals or a monitor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from qipf.scores.file_format import plain
from qipf.scores.fitted import Attachment, Fitted

if TYPE_CHECKING:
    from qipf.decisions.decision import Decision
    from qipf.decisions.probability import ErrorProbability
    from qipf.decisions.sets import PredictionSets


class Attached:
    """The part of a scorer that knows what was fitted, and what was learned about that fit; see `Scorer`."""

    name: ClassVar[str]
    fitted: Fitted | None = None
    _attachments: Mapping[str, Attachment] = MappingProxyType({})

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def attachments(self) -> Mapping[str, Attachment]:
        """What travels with this fitted scorer, by kind, for example `probability`, `decision` or `intervals`."""
        return MappingProxyType(dict(self._attachments))

    def attach(self, attachment: Attachment) -> Self:
        """Keep `attachment` with this scorer: `save`, `load`, `wrap` and `qipf score` take it along.

        It replaces an attachment of the same kind. Fitting the scorer again drops it.

        Raises:
            ValueError: it was learned about another scorer, or about another fit of this one.
        """
        self._require_fitted()
        if not isinstance(attachment, Attachment):
            raise TypeError(
                "attachment: expected an ErrorProbability, a Decision, PredictionSets, Intervals or a Monitor, got "
                f"{type(attachment).__name__}"
            )
        other = attachment.scorer
        if other is not None and not _same(self, other):
            raise ValueError(
                f"{attachment.kind}: it was learned about another scorer ({other.name}) or another fit, and does not "
                f"hold for this one ({self.name}); learn it again with this scorer"
            )
        attachment.bind(self)  # pyright: ignore[reportArgumentType]
        self._attachments = {**self._attachments, attachment.kind: attachment}
        return self

    @property
    def probability(self) -> ErrorProbability | None:
        """What turns scores into probabilities of error, `ErrorProbability().fit_scorer(scorer, held_out)`."""
        return self._attachments.get("probability")  # pyright: ignore[reportReturnType]

    @probability.setter
    def probability(self, value: ErrorProbability | None) -> None:
        self._set("probability", value)

    @property
    def decision(self) -> Decision | None:
        """Which predictions to accept, `Decision("error<=0.01").fit_scorer(scorer, held_out)`."""
        return self._attachments.get("decision")  # pyright: ignore[reportReturnType]

    @decision.setter
    def decision(self, value: Decision | None) -> None:
        self._set("decision", value)

    @property
    def prediction_sets(self) -> PredictionSets | None:
        """Which classes are possible, `PredictionSets(coverage=0.9).fit_scorer(scorer, held_out)`."""
        return self._attachments.get("prediction_sets")  # pyright: ignore[reportReturnType]

    @prediction_sets.setter
    def prediction_sets(self, value: PredictionSets | None) -> None:
        self._set("prediction_sets", value)

    def _set(self, kind: str, value: Attachment | None) -> None:
        if value is None:
            self._attachments = {name: part for name, part in self._attachments.items() if name != kind}
            return
        if getattr(value, "kind", None) != kind:
            expected = {"probability": "ErrorProbability", "decision": "Decision"}.get(kind, "PredictionSets")
            raise TypeError(f"{kind}: expected {expected} or None, got {type(value).__name__}")
        self.attach(value)

    def _require_fitted(self) -> Fitted:
        if self.fitted is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call .fit(model, outputs), or qipf.load a file")
        return self.fitted


def _same(one: Attached, other: Attached) -> bool:
    """Whether two scorers give the same scores: the same kind, settings and fit."""
    if one.name != other.name or not one._require_fitted().equals(other._require_fitted()):
        return False
    mine, others = (plain(scorer.settings()) for scorer in (one, other))
    return all(repr(mine[key]) == repr(others[key]) for key in mine if key != "progress")
