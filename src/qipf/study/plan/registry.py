"""Registry of the methods in plans, tables and reports.

A *column* of a table is one statistic of a method. Its identifier is the name of the method with the statistic in
parentheses, such as "ensemble (entropy)". The statistic is omitted if it is the method's only one (as in "entropy") or
the standard deviation (as in "ensemble").

    >>> column_title("mc-dropout")
    'MC dropout, standard deviation'
    >>> info("a-name-from-a-users-plan").title
    'a-name-from-a-users-plan'

A plan may define its own names (`[methods.mine]` with `kind = "knn"`). For these, `info` returns an entry of the family
"other" with the name as its title.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Literal

Family = Literal["recommended", "qipf", "confidence", "features", "several passes", "file", "other"]
Passes = Literal["one", "many", "file"]

COLOURS = 7
"""Number of colours in a chart. Methods in later slots reuse the colours with different markers."""

STATISTICS = {
    "score": "",
    "std": "standard deviation",
    "entropy": "entropy of the mean",
    "mutual_information": "mutual information",
    "std_mean_class": "standard deviation of the mean's class",
    "contrast": "contrast of the mean",
    "max_logit_one_pass": "largest logit of one pass",
}
"""Titles of the statistics; single-pass methods have only "score"."""
MANY_STATISTICS = tuple(name for name in STATISTICS if name != "score")
"""Statistics of multi-pass methods. The paper uses the first; only SVI and SVI-LL have the last."""


@dataclass(frozen=True)
class MethodInfo:
    """An entry of the registry.

    Attributes:
        name: Name in plans and tables.
        title: Title in reports, without the statistic.
        family: Group of similar methods.
        slot: Index of the colour and marker in charts (see `slots`).
        passes: "one" or "many" forward passes, or "file" for scores read from a file.
        kind: Underlying method, which differs from `name` for variants.
        shown: Statistics selected when a report opens.
    """

    name: str
    title: str
    family: Family
    slot: int
    passes: Passes = "one"
    kind: str = ""
    shown: tuple[str, ...] = ()

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the method's statistics."""
        if self.passes != "many":
            return ("score",)
        return MANY_STATISTICS if self.kind in ("svi", "svi-ll") else MANY_STATISTICS[:-1]


def _one(name: str, title: str, family: Family, slot: int, *, kind: str = "", shown: bool = False) -> MethodInfo:
    return MethodInfo(name, title, family, slot, "one", kind or name, ("score",) if shown else ())


def _many(name: str, title: str, slot: int, *, shown: tuple[str, ...] = (), kind: str = "") -> MethodInfo:
    return MethodInfo(name, title, "several passes", slot, "many", kind or name, shown)


_ENTRIES = (
    _one("default", "Recommended scorer (qipf.default)", "recommended", 0, shown=True),
    _one("probe", "Probe on the features", "features", 5, shown=True),
    _one("qipf", "QIPF of the weights", "qipf", 1, shown=True),
    _one("weight-qipf", "QIPF of the weights", "qipf", 1),
    _one("qipf-published", "QIPF as computed by the authors' program", "qipf", 7, kind="qipf"),
    _one("qipf-published-4-modes", "QIPF of the authors' program, 4 modes", "qipf", 16, kind="qipf"),
    _one("qipf-published-10-modes", "QIPF of the authors' program, 10 modes", "qipf", 17, kind="qipf"),
    _one("qipf-80", "QIPF, bandwidth factor 80", "qipf", 18, kind="qipf"),
    _one("qipf-160", "QIPF, bandwidth factor 160", "qipf", 19, kind="qipf"),
    _one("qipf-batch", "QIPF, lower bound over the batch", "qipf", 20, kind="qipf"),
    _one("qipf-v0", "QIPF, potential without modes", "qipf", 21, kind="qipf"),
    _one("qipf-all-weights", "QIPF of all weights, without pooling", "qipf", 22, kind="qipf"),
    _one("class-field", "Class-field contrast", "features", 6, shown=True),
    _one("softmax-response", "Softmax response", "confidence", 2, shown=True),
    _one("entropy", "Entropy of the softmax", "confidence", 44),
    _one("margin", "Margin of the softmax", "confidence", 8),
    _one("max-logit", "Largest logit", "confidence", 9),
    _one("energy", "Energy of the logits", "confidence", 10),
    _one("logit-margin", "Margin of the logits", "confidence", 29),
    _one("max-logit-p-norm", "Largest logit at unit p-norm", "confidence", 30),
    _one("doctor", "DOCTOR", "confidence", 31),
    _one("gen", "GEN, generalised entropy", "confidence", 32),
    _one("rel-u", "REL-U", "confidence", 33),
    _one("contrast", "Contrast, log odds against the predicted class", "confidence", 34),
    _one("knn", "Distance to the nearest neighbours", "features", 11),
    _one("mahalanobis", "Mahalanobis distance", "features", 12),
    _one("delta-knn", "Delta-KNN", "features", 35),
    _one("vim", "ViM, virtual-logit matching", "features", 36),
    _one("sirc", "SIRC", "features", 37),
    _one("geometric-margin", "Distance to the decision boundary", "features", 38),
    _one("last-layer-laplace", "Laplace approximation of the last layer", "features", 39),
    _one("residual-scale", "Scale of the residual", "features", 43),
    _many("mc-dropout", "MC dropout", 3, shown=("std", "entropy")),
    _many("mc-dropout-ll", "MC dropout of the last layer", 13),
    _many("mc-dropout-ll-authors", "MC dropout one layer earlier", 40, kind="mc-dropout-ll"),
    _many("svi", "Variational inference", 14),
    _many("svi-ll", "Variational inference of the last layer", 25),
    _many("svi-authors", "Variational inference, authors' program", 41, kind="svi"),
    _many("svi-ll-authors", "Variational inference of the last layer, authors' program", 42, kind="svi-ll"),
    _many("ensemble", "Deep ensemble", 4, shown=("std", "entropy")),
    _many("swag", "SWAG", 26),
    _many("sgd-iterates", "SGD iterates", 27),
    _one("twin", "Twin of the last part of the network", "features", 46),
    _one("one-width", "One width for all inputs", "other", 45),
    MethodInfo("scores", "Scores from a file", "file", 15, "file", kind="scores"),
)  # fmt: skip
REGISTRY: dict[str, MethodInfo] = {entry.name: entry for entry in _ENTRIES}
"""Every method, keyed by name, in the order used in reports."""
KINDS: dict[str, MethodInfo] = {name: entry for name, entry in REGISTRY.items() if entry.kind == name != "class-field"}
"""Methods that a plan can select by `kind`; class fields occur only in tables from earlier versions of qipf."""

FROM_SCRATCH = ("svi", "svi-ll", "ensemble")
"""Methods that train their own networks."""
TRAINED = ("svi", "svi-ll", "swag", "sgd-iterates")
"""Multi-pass methods that are trained with the recipe of the pair."""


_TITLES: ContextVar[Mapping[str, str]] = ContextVar("titles", default=MappingProxyType({}))


@contextmanager
def titled(titles: object) -> Iterator[None]:
    """Override method titles within the block; `titles` is the entry "titles" in environment.json, or None."""
    found = titles.items() if isinstance(titles, Mapping) else ()
    token = _TITLES.set({str(name): title for name, title in found if isinstance(title, str)})
    try:
        yield
    finally:
        _TITLES.reset(token)


def info(name: str) -> MethodInfo:
    """Return the entry of a method; for an unknown name, a new entry of the family "other"."""
    entry = REGISTRY.get(name) or MethodInfo(name, name, "other", slot=-1, kind=name)
    title = _TITLES.get().get(name)
    return entry if title is None else replace(entry, title=title)


def column(name: str, statistic: str) -> str:
    """Return the identifier of a column, such as "ensemble (entropy)"."""
    return name if statistic in ("score", MANY_STATISTICS[0]) else f"{name} ({statistic})"


def split_column(identifier: str) -> tuple[str, str]:
    """Split a column identifier into method and statistic."""
    name, bracket, rest = identifier.rpartition(" (")
    if bracket and rest.removesuffix(")") in MANY_STATISTICS:
        return name, rest.removesuffix(")")
    return identifier, info(identifier).statistics[0]


def title(name: str, statistic: str) -> str:
    """Return a title such as "MC dropout, standard deviation"."""
    words = STATISTICS.get(statistic, statistic)
    return f"{info(name).title}, {words}" if words else info(name).title


def column_title(identifier: str) -> str:
    """Return the title of a column."""
    return title(*split_column(identifier))


def shown_first() -> tuple[str, ...]:
    """Return the columns selected when a report opens."""
    return tuple(column(entry.name, statistic) for entry in _ENTRIES for statistic in entry.shown)


def slots(names: Iterable[str]) -> dict[str, int]:
    """Return the slot of each method, which determines its colour (`slot % COLOURS`) and marker (`slot // COLOURS`).

    Unknown names receive free slots in order.
    """
    names = list(dict.fromkeys(names))
    taken = {REGISTRY[name].slot for name in names if name in REGISTRY}
    free = (slot for slot in count() if slot not in taken)
    return {name: REGISTRY[name].slot if name in REGISTRY else next(free) for name in names}
