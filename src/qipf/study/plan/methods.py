"""The methods that a plan can name: every registered scorer, every many-pass method, and scores from a file."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qipf.study.plan.pairs import Method

ALIASES = {"qipf": "weight-qipf"}
MANY_PASSES = {
    "mc-dropout": "qipf.predictive.dropout:MCDropout",
    "mc-dropout-ll": "qipf.predictive.dropout:MCDropoutLastLayer",
    "svi": "qipf.predictive.variational:SVI",
    "svi-ll": "qipf.predictive.variational:SVILastLayer",
    "swag": "qipf.predictive.swag:SWAG",
    "sgd-iterates": "qipf.predictive.iterates:SGDIterates",
}
FROM_SCRATCH = ("svi", "svi-ll", "ensemble")
"""These train networks of their own, and need to know how."""
TRAINED = ("svi", "svi-ll", "swag", "sgd-iterates")
"""Methods of many passes whose fit takes training steps, with the recipe of the pair."""

FIT_ON = ("reference", "held-out", "perturbed")
"""Training inputs; inputs that no network saw; training inputs, every second one with a reference perturbation."""


@dataclass(frozen=True)
class Kind:
    """What a plan may say about a method."""

    name: str
    passes: str  # "one", "many" or "file"

    def parameters(self) -> list[str]:
        """The keys that a plan may set."""
        if self.name == "ensemble":
            return ["members"]
        if self.name == "scores":
            return ["file"]
        if self.passes == "many":
            names = _arguments(many_pass_class(self.name))
            extra = (
                ["epochs", "batch_size", "learning_rate", "weight_decay", "augment", "schedule"]
                if self.name in FROM_SCRATCH
                else []
            )
            return [*dict.fromkeys([*names, *extra])]
        if self.name == "default":
            return ["landmarks", "perturb"]
        settings = [field.name for field in dataclasses.fields(scorer_class(self.name))]  # pyright: ignore[reportArgumentType]
        return [*("variant" if name == "kind" else name for name in settings), "fit_on"]

    def problem(self, method: Method, model: str | None, pool: int, folder: Path | None) -> str:
        """What is wrong with the method for this model, beginning with the key's end; empty if nothing."""
        from qipf.study.plan.checks import PlanError, existing

        params = method.params
        if model is not None and (self.name in FROM_SCRATCH or (self.passes == "many" and model.endswith(".pt2"))):
            what = "a .pt2 program" if model.endswith(".pt2") else "a model that is taken as it is"
            return f": does not work with {what}; leave it out for {model}"
        if self.name == "ensemble":
            members = params.get("members", 10)
            if not isinstance(members, int) or isinstance(members, bool) or members < 2:
                return f".members: expected a whole number >= 2, got {members!r}"
            if pool and members > pool:
                return f".members: {members} members do not fit in a pool of {pool}"
            return ""
        if self.name == "scores":
            try:
                existing(params.get("file", ""), folder, f"methods.{method.name}.file")
            except PlanError as error:
                return str(error).removeprefix(f"methods.{method.name}")
            return ""
        if self.name == "default":
            return ""
        if params.get("fit_on", "reference") not in FIT_ON:
            return f".fit_on: expected one of {', '.join(FIT_ON)}, got {params['fit_on']!r}"
        try:
            build(self.name, {key: value for key, value in params.items() if key != "fit_on"})
        except (TypeError, ValueError) as error:
            return f": {error}"
        return ""

    def resolve(self, params: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
        """The parameters with paths made absolute."""
        from qipf.study.plan.checks import existing

        if self.name != "scores":
            return dict(params)
        return {**params, "file": existing(params["file"], folder, "file")}


def many_pass_class(kind: str) -> Any:
    """The class of a many-pass method."""
    from importlib import import_module

    module, name = MANY_PASSES[kind].split(":")
    return getattr(import_module(module), name)


def scorer_class(kind: str) -> Any:
    """The class of a single-pass scorer."""
    from qipf.scores import SCORERS

    return SCORERS[ALIASES.get(kind, kind)]


def build(kind: str, params: Mapping[str, Any]) -> Any:
    """A scorer or many-pass method with these parameters, not fitted yet."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in params.items()}
    if values.get("pool") == "none":
        values["pool"] = None  # TOML has no other way to say it
    if "variant" in values:
        values["kind"] = values.pop("variant")  # in a plan, `kind` says which method it is
    return (many_pass_class(kind) if kind in MANY_PASSES else scorer_class(kind))(**values)


def fit_on(kind: str, params: Mapping[str, Any]) -> str:
    """What a scorer is fitted to, one of `FIT_ON`.

    Only what learns from errors needs held-out inputs: networks make next to none on what they were trained on.
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


class _Kinds(Mapping[str, Kind]):
    """All kinds by name. Scorers register themselves, so what is there is only known when asked."""

    def _all(self) -> dict[str, Kind]:
        from qipf.scores import SCORERS

        single = [*ALIASES, "default", *SCORERS]
        return {
            **{name: Kind(name, "one") for name in single},
            **{name: Kind(name, "many") for name in (*MANY_PASSES, "ensemble")},
            "scores": Kind("scores", "file"),
        }

    def __getitem__(self, name: str) -> Kind:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


KINDS: Mapping[str, Kind] = _Kinds()
