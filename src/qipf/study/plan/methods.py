"""Validation of the methods and tasks in a plan."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qipf._common.optional import require
from qipf.decisions.comparison import ONE_WIDTH
from qipf.scores.default import EFFORTS
from qipf.study.plan.registry import FROM_SCRATCH, KINDS
from qipf.tasks.classes import Classes, Labels, Numbers
from qipf.tasks.pixels import Pixels
from qipf.tasks.task import Task
from qipf.tasks.tokens import Tokens

if TYPE_CHECKING:
    import msgspec

    from qipf.study.plan.plan import Pair
else:
    msgspec = require("msgspec", extra="bench")

WORDS = {"int": "an integer", "str": "a string", "float": "a number", "array": "a list", "object": "a table"}
"""Names of types in messages, keyed by their names in msgspec."""


class PlanError(ValueError):
    """The plan is invalid; the message names any invalid key."""


class UnknownPlanError(PlanError):
    """No shipped plan or file has the given name."""


def decoded(values: Any, kind: Any, where: str = "") -> Any:
    """Convert a TOML table or value to `kind`: a struct, a list or a simple type.

    Raises:
        PlanError: A key or value is invalid.
    """
    if isinstance(values, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        check_keys(values, kind.__struct_fields__, where or "the plan")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        found = values
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            found = found[name] if name else found[int(index)]
        types, limit = re.fullmatch(r"Expected `(.*?)`(?:, got `.*`)?(.*)", message, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
        expected = " or ".join(WORDS.get(name, name) for name in types.split(" | ") if name != "null")
        key = (where + path.rstrip("`")).lstrip(".")
        raise PlanError(f"{key}: expected {expected}{limit}, got {found!r}") from None


def check_keys(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise PlanError for an unknown key and suggest the most similar known key."""
    known = list(known)
    for key in values:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r}; {did_you_mean(key, known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the most similar known name, or else list all known names."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known) or '(nothing)'}"


def existing(name: str, folder: Path | None, where: str) -> str:
    """Return the absolute path of an existing file, or raise PlanError."""
    path = ((folder or Path()) / name).resolve()
    if not path.is_file():
        raise PlanError(f"{where}: there is no file {path}")
    return str(path)


ALIASES = {"qipf": "weight-qipf"}
"""Names in `qipf.scores` of the scorers that have a different name in plans, keyed by the name in plans."""

MODEL_FILES = (".pt2", ".h5", ".onnx")
"""Suffixes of files that contain a whole network."""
ONE_PASS_FILES = (".pt2", ".onnx")
"""Suffixes of files whose networks cannot be modified and are therefore not supported by multi-pass methods."""
TOKEN_SCORES = ("softmax-response", "entropy", "margin", "max-logit", "energy", "logit-margin")
"""Scorers available for tokens, besides "default"; they need only a summary of the logits."""
FIT_ON = ("reference", "held-out", "perturbed")
"""Inputs for fitting a scorer: training inputs, held-out inputs, or training inputs with perturbed copies."""


def parameters(kind: str) -> list[str]:
    """Return the parameters that a plan can set for a method."""
    fixed = {"ensemble": ["members"], "scores": ["file"], "default": ["effort", "features"], ONE_WIDTH: []}
    if kind in fixed:
        return fixed[kind]
    if is_many(kind):
        training = ["epochs", "batch_size", "learning_rate", "weight_decay", "augment", "schedule"]
        extra = training if kind in FROM_SCRATCH else []
        return [*dict.fromkeys([*_arguments(_class(kind)), *extra])]
    settings = [field.name for field in dataclasses.fields(_class(kind))]
    return [*settings, "fit_on"]


def check_method(
    kind: str, params: Mapping[str, Any], where: str, model: str | None, pool: int, folder: Path | None
) -> dict[str, Any]:
    """Check the parameters of a method and return them with absolute file paths.

    Raises:
        PlanError: A parameter is invalid, or the method does not support the model.
    """
    if model is not None and (kind in FROM_SCRATCH or (is_many(kind) and model.endswith(ONE_PASS_FILES))):
        fixed = model.endswith(ONE_PASS_FILES)
        what = f"a {Path(model).suffix} file" if fixed else "your own model, which the study does not train"
        raise PlanError(f"{where}: does not work with {what}; remove this method from plans with {model}")
    if kind == "scores":
        file = params.get("file", "")
        return {**params, "file": existing(file if isinstance(file, str) else repr(file), folder, f"{where}.file")}
    if kind == "ensemble":
        members = params.get("members", 10)
        if not isinstance(members, int) or isinstance(members, bool) or members < 2:
            raise PlanError(f"{where}.members: expected an integer >= 2, got {members!r}")
        if pool and members > pool:
            raise PlanError(f"{where}.members: expected at most {pool} (the size of the pool), got {members}")
    elif kind == "default":
        effort = params.get("effort", "standard")
        if effort not in EFFORTS:
            raise PlanError(f"{where}.effort: expected one of {', '.join(EFFORTS)}, got {effort!r}")
    elif kind != ONE_WIDTH:
        if params.get("fit_on", "reference") not in FIT_ON:
            raise PlanError(f"{where}.fit_on: expected one of {', '.join(FIT_ON)}, got {params['fit_on']!r}")
        try:
            build(kind, {key: value for key, value in params.items() if key != "fit_on"})
        except (TypeError, ValueError) as error:
            raise PlanError(f"{where}: {error}") from None
    return dict(params)


def is_many(kind: str) -> bool:
    """Return True for a multi-pass method."""
    return KINDS[kind].passes == "many"


def is_fitted_passes(kind: str) -> bool:
    """Return True for any multi-pass method except an ensemble, which needs no fitting."""
    return kind != "ensemble" and is_many(kind)


def _class(kind: str) -> Any:
    """Return the class of a scorer or of a multi-pass method."""
    from qipf.predictive import METHODS
    from qipf.scores import SCORERS

    return METHODS[kind] if is_many(kind) else SCORERS[ALIASES.get(kind, kind)]


def build(kind: str, params: Mapping[str, Any]) -> Any:
    """Return an unfitted scorer or multi-pass method."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in params.items()}
    if values.get("pool") == "none":
        values["pool"] = None  # TOML cannot express None
    return _class(kind)(**values)


def fit_on(kind: str, params: Mapping[str, Any]) -> str:
    """Return the inputs for fitting a scorer, one of `FIT_ON`.

    Scorers that learn from errors default to held-out inputs, because networks make few errors on training data.
    """
    chosen = params.get("fit_on")
    if chosen or kind == "default":
        return chosen or "perturbed"
    scorer = build(kind, {key: value for key, value in params.items() if key != "fit_on"})
    learns = getattr(scorer, "factor", None) in ("auto", "cv") or getattr(scorer, "held_out", False)
    return "held-out" if learns else "reference"


def _arguments(cls: Any) -> Iterator[str]:
    for base in cls.__mro__:
        if "__init__" in vars(base) and base is not object:
            for parameter in inspect.signature(base.__init__).parameters.values():
                if parameter.name != "self" and parameter.kind != parameter.VAR_KEYWORD:
                    yield parameter.name


# --- tasks ---------------------------------------------------------------------------------------------------------

PREDICTS: dict[str, Task] = {
    "classes": Classes(),
    "tokens": Tokens(shift=True),
    "tags": Tokens(shift=False),
    "pixels": Pixels(),
    "labels": Labels(),
    "numbers": Numbers(),
}
"""Tasks that a plan can name."""
SCALES = (ONE_WIDTH, "residual-scale")
"""Methods for regression: intervals of constant width, or a scale for every prediction."""
COVERAGE = 0.9
"""Default target coverage of intervals."""
MOVING = ("rotation", "shear", "zoom", "shift", "scale")
"""Shifts that move pixels away from their labels."""


def check_fits(pair: Pair, where: str, *, coverage: float | None) -> None:
    """Raise PlanError if a setting, shift or method does not fit the task of a pair."""
    task, kind = pair.predicts, PREDICTS[pair.predicts]
    for method in pair.methods:
        problem = _misfit(task, method.name, method.kind, method.params)
        if problem:
            raise PlanError(f"methods.{method.name}{problem}")
    if coverage is not None and task != "numbers":
        raise PlanError(f"{where}.coverage: only for predicts = 'numbers'; remove it for {task}")
    if task == "classes":
        return
    if pair.model is None or not pair.dataset.endswith(".npz"):
        raise PlanError(f"{where}.predicts: {task!r} requires your own `model` and an .npz file as `dataset`")
    if pair.out_of_distribution:
        raise PlanError(f"{where}.out_of_distribution: only for predicts = 'classes'; remove it for {task}")
    if task == "numbers" and len(pair.seeds) > 1:
        raise PlanError(
            f"{where}.seeds: expected one seed for predicts = 'numbers', because your own model is a single network"
        )
    for name in pair.shifts:
        if (task == "pixels" and name in MOVING) or (kind.name == "tokens" and name == "word-drops"):
            raise PlanError(
                f"{where}.shifts: {name} would misalign the inputs and the labels of {task}; remove it, or list your "
                "own files with shifted inputs and labels in `shifted`"
            )


def _misfit(task: str, name: str, kind: str, params: Mapping[str, Any]) -> str:
    """Return the end of a message that begins with "methods.NAME", or "" if the method fits the task."""
    fit_on = params.get("fit_on", "reference")
    if task == "numbers":
        if kind not in SCALES:
            return f": {kind} does not work with predicts = 'numbers'; choose one of {', '.join(SCALES)}"
        if name == ONE_WIDTH != kind:
            return f": this name is reserved for the method {ONE_WIDTH}; choose another name"
        if fit_on != "reference":
            return ".fit_on: expected 'reference' for regression, because intervals are fitted to the held-out inputs"
    elif kind in SCALES:
        return f': {kind} works only for regression; remove it, or set predicts = "numbers"'
    elif task != "classes":
        if KINDS[kind].passes != "one":
            return f": works only for models with one prediction per input; remove it from plans for {task}"
        if PREDICTS[task].name == "tokens" and kind not in ("default", *TOKEN_SCORES):
            return f": {kind} does not work for tokens; choose one of {', '.join(('default', *TOKEN_SCORES))}"
        if fit_on == "perturbed":
            return f".fit_on: expected reference or held-out for {task}"
        if kind == "default" and "effort" in params:
            return f".effort: applies only to models with one prediction per input; remove it for {task}"
    return ""
