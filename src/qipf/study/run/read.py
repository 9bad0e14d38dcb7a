"""Read the store of a study.

    bench = open_store("results/mnist")
    bench.rows()                              # the long table; see `Row` for its columns
    for condition in bench.conditions():
        p = bench.predictions(condition)
        p.labels, p.predicted, p.correct      # arrays (n,) for the base network
        p.scores["entropy", "score"]          # (n,), keyed by method and score; higher = less certain
        p.scores["ensemble", "std"]           # multi-pass: "std", "entropy", "mutual_information"

If multi-pass methods scored only some of the inputs (`multi_pass_size`), their scores for the other inputs are NaN, and
their predicted classes are -1. `p.common()` contains only the inputs that all methods scored. If the run has not ended
or cells have failed, the available results are returned. A damaged file raises DamagedError.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

from qipf._common.optional import require
from qipf.data.tables import csv_text
from qipf.study.plan.plan import Pair, Plan
from qipf.study.run.maps import SUFFIX, KeptMaps
from qipf.study.run.measure import PredictedNumbers, numbers_of
from qipf.study.run.store import Store, StoreError, damaged
from qipf.study.run.study_data import common_rows
from qipf.study.run.verify import note_of

if TYPE_CHECKING:
    from qipf.scores import Scorer

__all__ = ["Bench", "Condition", "Predictions", "Row", "open_store"]

TABLES = ("table.csv", "table.parquet", "times.csv")
"""Documents written at the end of a run."""
TIMES = ("dataset", "net", "method", "passes", "forward_ms", "method_ms", "extra_ms", "ratio", "samples", "device")
ENTRY = {"kind", "key", "dataset", "net", "seed", "group", "method"}
"""Keys of an entry of index.json."""


class Row(NamedTuple):
    """One row of the long table.

    Attributes:
        seed: Seed of the base network.
        shift: "clean", the name of a shift, or "ood:" followed by a dataset.
        intensity: In the unit of the shift.
        severity: At least 1, or 0 if there is no shift.
        method: Name in the plan.
        score: "score" or, for multi-pass methods, a statistic such as "std".
        errors: What the score should detect: errors of the "base" network or of the method's "own" mean prediction,
            "ood" inputs or, for regression, the "size" of errors.
        metric: A name in `qipf.metrics.METRICS`, "ece_confidence" or "brier_confidence" (of the predicted probability).
            For regression, a measure of `compare_intervals` or "error" (mean absolute error).
        value: NaN if the metric is undefined.
        low: Lower end of the 95% bootstrap interval, or NaN.
        high: Upper end, or NaN.
        accuracy: Fraction of correct predictions or, for "ood", of clean inputs; NaN for regression.
        subset: "all", or "common" for inputs that every method scored. If both exist, compare methods on "common".
    """

    dataset: str
    net: str
    seed: int
    shift: str
    intensity: float
    severity: int
    method: str
    score: str
    errors: str
    metric: str
    value: float
    low: float
    high: float
    n: int
    accuracy: float
    subset: str = "all"


class Condition(NamedTuple):
    """The network, dataset and shift of a set of predictions."""

    dataset: str
    net: str
    seed: int
    shift: str
    intensity: float
    severity: int


@dataclass(frozen=True)
class Predictions:
    """Predictions of the base network, with the scores of every method."""

    labels: np.ndarray
    predicted: np.ndarray
    scores: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    own_predicted: dict[str, np.ndarray] = field(default_factory=dict)
    common_rows: np.ndarray | None = None
    groups: np.ndarray | None = None
    """Index of each prediction's input, if the model makes several predictions per input."""

    @property
    def correct(self) -> np.ndarray:
        """True for each correct prediction of the base network."""
        return self.predicted == self.labels

    def common(self) -> Predictions:
        """Return the predictions for the inputs that every method scored."""
        if self.common_rows is None:
            return self
        rows = self.common_rows
        scores = {name: values[rows] for name, values in self.scores.items()}
        own = {name: values[rows] for name, values in self.own_predicted.items()}
        return Predictions(self.labels[rows], self.predicted[rows], scores, own)


def open_store(path: str | os.PathLike[str]) -> Bench:
    """Open the store of a study; raise StoreError if it contains no results."""
    bench = Bench(Store(path))
    for name in ("plan.json", "index.json"):
        if not bench.store.documents.has(name):
            raise StoreError(f"{bench.store.path} has no {name}: no benchmark has been run in it yet")
    bench.lost = bench.store.lost_records()
    measures = [one for one in bench.lost if one[0] == "measure"]
    if measures and bench.store.finished():  # results would be missing; a store without any cells contains only tables
        why = f"it is missing (lost records: {len(measures)})"
        raise damaged(bench.store.file(*measures[0], ".json"), why)
    return bench


class Bench:
    """Read access to the store of a study."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lost: list[tuple[str, str]] = []

    @cached_property
    def plan(self) -> Plan:
        """The plan with all settings resolved."""
        values = self._document("plan.json")
        try:
            return Plan.from_json(values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.store.path / "plan.json", f"{type(error).__name__}: {error}") from None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, device, processor and date of the last run."""
        return self._document("environment.json") if self.store.documents.has("environment.json") else {}

    @cached_property
    def index(self) -> list[dict[str, Any]]:
        """Description of each cell; see `ENTRY` for the keys."""
        entries = self._document("index.json")
        if not isinstance(entries, list) or not all(isinstance(e, dict) and e.keys() >= ENTRY for e in entries):
            why = f"expected a list of entries with {', '.join(sorted(ENTRY))}"
            raise damaged(self.store.path / "index.json", why)
        for entry in entries:
            if not re.fullmatch("[a-z]+ [0-9a-f]{32}", f"{entry['kind']} {entry['key']}"):
                why = f"{entry['kind']!r} and {entry['key']!r} are not the kind and the key of a cell"
                raise damaged(self.store.path / "index.json", why)
        return entries

    def _document(self, name: str) -> Any:
        try:
            return json.loads(self.store.documents.read(name))
        except ValueError as error:  # not JSON
            raise damaged(self.store.path / name, str(error)) from None

    def rows(self) -> list[Row]:
        """Return the rows of the long table in plan order."""
        found = []
        for entry in self._finished("measure"):
            pair = self.pair(entry["dataset"], entry["net"])
            for place, *rest in self.store.record("measure", entry["key"])["rows"]:
                score, errors, metric, *numbers, n, accuracy, subset = rest
                value, low, high, accuracy = (float("nan") if one is None else one for one in (*numbers, accuracy))
                where = (*_about(entry), *pair.condition(entry["group"], place))
                found.append(Row(*where, entry["method"], score, errors, metric, value, low, high, n, accuracy, subset))
        return found

    def times(self) -> list[dict[str, Any]]:
        """Return the milliseconds per sample of each method and of its forward pass."""
        found = []
        for entry in self._finished("time"):
            record = self.store.record("time", entry["key"])
            known = {**entry, **record, "device": record["params"]["device"]}
            found.append({name: known[name] for name in TIMES if name in known})
        return found

    def write_tables(self) -> None:
        """Write the tables in `TABLES`."""
        pyarrow, parquet = require("pyarrow", extra="bench"), require("pyarrow.parquet", extra="bench")
        rows, times, documents = self.rows(), self.times(), self.store.documents
        documents.write("table.csv", csv_text(Row._fields, rows))
        documents.write("times.csv", csv_text(TIMES, [[row.get(name, "") for name in TIMES] for row in times]))
        columns = {name: [row[i] for row in rows] for i, name in enumerate(Row._fields)}
        types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
        schema = pyarrow.schema([(name, types[kind]) for name, kind in get_type_hints(Row).items()])
        buffer = io.BytesIO()
        parquet.write_table(pyarrow.table(columns, schema=schema), buffer)
        documents.write("table.parquet", buffer.getvalue())

    def conditions(self) -> list[Condition]:
        """Return all conditions with predictions in plan order."""
        found = []
        for entry in self._finished("base"):
            pair, group = self.pair(entry["dataset"], entry["net"]), entry["group"]
            places = range(len(pair.grid(group))) if group != "held-out" else ()
            found += [Condition(*_about(entry), *pair.condition(group, place)) for place in places]
        return found

    def predictions(self, condition: Condition, methods: Iterable[str] | None = None) -> Predictions:
        """Return the predictions under a condition, with the scores of the given methods; None selects all."""
        return self._predictions(condition[:4], self._place(condition), methods)

    def held_out(self, dataset: str, net: str, seed: int) -> Predictions:
        """Return the predictions for the clean held-out inputs."""
        return self._predictions((dataset, net, seed, "held-out"), 0, None)

    def numbers(self, condition: Condition) -> tuple[PredictedNumbers, PredictedNumbers]:
        """Return a regression model's predictions for the held-out inputs, and those under a condition."""
        return self._numbers((*condition[:3], "held-out"), 0), self._numbers(condition[:4], self._place(condition))

    def maps(self, dataset: str, net: str, seed: int, shift: str, method: str) -> tuple[int, KeptMaps] | None:
        """Return the index of an intensity with its uncertainty maps, or None if no maps are stored."""
        for entry in self._places.get((dataset, net, seed, shift), []):
            if entry["kind"] == "score" and entry["method"] == method:
                content = self.store.content("score", entry["key"], SUFFIX)
                if content is not None:
                    place = self.store.record("score", entry["key"])["maps_place"]
                    return place, KeptMaps.from_bytes(content)
        return None

    def images(
        self, condition: Condition, rows: Sequence[int] | np.ndarray, data: str | os.PathLike[str] | None = None
    ) -> np.ndarray:
        """Return the images of `rows` under a condition; `data` is the folder with dataset files."""
        from qipf.arrays import to_numpy
        from qipf.study.run import study_data

        pair, wanted = self.pair(condition.dataset, condition.net), np.asarray(rows)
        if pair.predicts != "classes":
            raise ValueError(
                f"images: only for predicts = 'classes', which has one row per image; got {pair.predicts!r}"
            )
        folder = None if data is None else str(data)
        digests = [
            self.store.record(entry["kind"], entry["key"])["params"]["data"]["digest"]
            for entry in self._finished("train", "model")
            if (entry["dataset"], entry["net"]) == condition[:2]
        ]
        loaded = study_data.load_data(
            pair.dataset, pair.calibration_size, folder, "cpu", held_out_of=study_data.held_out_of(pair),
            digest=next(iter(digests), ""),
        )  # fmt: skip
        files = pair.shifted.get(condition.shift, ())
        group = study_data.Group(condition.shift, pair.grid(condition.shift), 0, files=files)
        return to_numpy(study_data.inputs_of(loaded, group, self._place(condition), folder, "cpu").inputs[wanted])

    def scorer(self, dataset: str, net: str, seed: int, method: str) -> Scorer | None:
        """Return a fitted scorer, or None if the method has none."""
        for entry in self._finished("fit"):
            if (entry["dataset"], entry["net"], entry["seed"], entry["method"]) == (dataset, net, seed, method):
                return self.store.scorer("fit", entry["key"])
        return None

    def networks(self) -> list[dict[str, Any]]:
        """Return the networks with their accuracies on clean test inputs; [] for regression."""
        found = [(entry, self.store.record(entry["kind"], entry["key"])) for entry in self._finished("train", "model")]
        return [
            {**{name: entry[name] for name in ("dataset", "net", "seed")}, "accuracy": record["accuracy"]}
            for entry, record in found
            if "accuracy" in record
        ]

    def failures(self) -> list[dict[str, Any]]:
        """Return the label, kind, error and traceback of each failed cell."""
        found = [self.store.note("failed", key) for key in dict.fromkeys(entry["key"] for entry in self.index)]
        return [failure for failure in found if failure is not None]

    def notes(self) -> list[str]:
        """Return the notes about the store, the fits and the user's own models."""
        found = [note for note in (note_of(self.environment),) if note]
        if self.lost:
            count = len(self.lost)
            lost = "1 record has been lost" if count == 1 else f"{count} records have been lost"
            found.append(f"{lost} from the store; run the plan again to compute what is missing")
        for entry, note in self.noted("model", "fit"):
            method = f"{entry['method']} on " if entry["method"] else ""
            found.append(f"{method}{entry['dataset']}/{entry['net']} #{entry['seed']}: {note}")
        return found

    def noted(self, *kinds: str) -> list[tuple[dict[str, Any], str]]:
        """Return the finished cells of the given kinds that have a note, each with its note."""
        found = [
            (entry, self.store.record(entry["kind"], entry["key"]).get("note")) for entry in self._finished(*kinds)
        ]
        return [(entry, note) for entry, note in found if note]

    def _finished(self, *kinds: str) -> list[dict[str, Any]]:
        return [e for e in self.index if e["kind"] in kinds and self.store.has(e["kind"], e["key"])]

    def pair(self, dataset: str, net: str) -> Pair:
        """Return the pair whose dataset and network have these names in tables."""
        for pair in self.plan.pairs:
            if (pair.dataset_name, pair.net) == (dataset, net):
                return pair
        raise ValueError(f"the plan {self.plan.name!r} has no pair {dataset}/{net}")

    def _place(self, condition: Condition) -> int:
        grid = self.pair(condition.dataset, condition.net).grid(condition.shift)
        return grid.index(condition.intensity)

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for entry in self._finished("base", "score"):
            places.setdefault(_about(entry), []).append(entry)
        return places

    def _base(self, about: tuple[Any, ...]) -> dict[str, np.ndarray]:
        for entry in self._places.get(about, []):
            if entry["kind"] == "base":
                return self.store.arrays("base", entry["key"])
        raise StoreError(f"{self.store.path} has no predictions yet for {about[0]}/{about[1]} under {about[3]}")

    def _predictions(self, about: tuple[Any, ...], place: int, methods: Iterable[str] | None) -> Predictions:
        wanted = None if methods is None else set(methods)
        scores: dict[tuple[str, str], np.ndarray] = {}
        own: dict[str, np.ndarray] = {}
        base = self._base(about)
        if "targets" in base:
            raise ValueError("the predictions of a regression model are neither right nor wrong; use `Bench.numbers`")
        count = len(base["labels"])
        common: np.ndarray | None = None
        for entry in self._places[about]:
            if entry["kind"] == "base" or (wanted is not None and entry["method"] not in wanted):
                continue
            for name, values in self.store.arrays("score", entry["key"]).items():
                score, _, number = name.partition("/")
                if int(number) != place:
                    continue
                if len(values) < count:
                    asked = self.store.record("score", entry["key"])["params"]["group"]
                    common = common_rows(count, asked["subset"])
                    whole = np.full(count, -1 if score == "predicted" else np.nan, values.dtype)
                    whole[common] = values
                    values = whole
                if score == "predicted":
                    own[entry["method"]] = values
                elif score != "error_probability":
                    scores[entry["method"], score] = values
        return Predictions(base["labels"], base[f"predicted/{place}"], scores, own, common, base.get("groups"))

    def _numbers(self, about: tuple[Any, ...], place: int) -> PredictedNumbers:
        base, entries = self._base(about), [entry for entry in self._places[about] if entry["kind"] == "score"]
        return numbers_of(base, {entry["method"]: self.store.arrays("score", entry["key"]) for entry in entries}, place)


def _about(entry: dict[str, Any]) -> tuple[str, str, int, str]:
    return entry["dataset"], entry["net"], entry["seed"], entry["group"]
