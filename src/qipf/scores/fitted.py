"""What fitting leaves behind, and what may travel with a fitted scorer."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from qipf.scores.file_format import plain

if TYPE_CHECKING:
    from qipf.scores.base import Scorer


@dataclass(frozen=True)
class Fitted:
    """What fitting leaves behind: all that a file needs to hold in addition to the settings."""

    tensors: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    """plain JSON values: what was found (a bandwidth, a number of classes, a note to the user)"""

    def equals(self, other: Fitted) -> bool:
        """Whether both hold the same tensors and facts."""
        if self is other:
            return True
        same = self.tensors.keys() == other.tensors.keys() and plain(self.facts) == plain(other.facts)
        return same and all(np.array_equal(value, other.tensors[key]) for key, value in self.tensors.items())


class Attachment(ABC):
    """Something learned about one fitted scorer that is saved, loaded and wrapped together with it.

    A subclass names itself with `kind`, and gives `state` and `from_state`. `Scorer.attach` keeps at most one
    attachment of each kind; fitting the scorer again drops all of them.
    """

    kind: ClassVar[str]
    scorer: Scorer | None = None
    """the scorer it was attached to, as it was then; None before"""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            ATTACHMENTS[cls.kind] = cls

    def bind(self, scorer: Scorer) -> None:
        """Remember the scorer as it is now; a later fit of it must not change what was learned about it."""
        own = copy.copy(scorer)
        own._attachments = {}
        self.scorer = own

    @abstractmethod
    def state(self) -> Fitted:
        """Arrays and plain JSON values from which `from_state` makes an equal object."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Fitted) -> Self:
        """The object that `state` came from.

        Raises:
            ValueError: the state does not describe such an object.
        """


ATTACHMENTS: dict[str, type[Attachment]] = {}
"""Every kind of attachment by its name: `qipf.load` finds them here."""
