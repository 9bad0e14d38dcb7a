"""Keep what one module of a network saw in the last forward pass, with all its places."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor, nn

from qipf.models.features import find_module, first_tensor


class Tap:
    """A context manager that keeps the features of every place: every token, or every pixel.

    Args:
        model: The network.
        features: The name of the module whose output to keep; True for the input of the layer that makes the logits,
            which is taken to be the last one called of type `classifier`; False for nothing.
        classifier: The type of the layer that makes the logits.
    """

    def __init__(self, model: nn.Module, features: str | bool, classifier: type[nn.Module]) -> None:
        self.features, self._kind, self._kept = features, classifier, None
        named = {name.replace("_orig_mod.", ""): module for name, module in model.named_modules() if name}
        if isinstance(features, str):
            self._modules = [find_module(named, features)]
        else:
            self._modules = [module for module in model.modules() if features and isinstance(module, classifier)]
            if features and not self._modules:
                raise ValueError(
                    f"features: the model has no {classifier.__name__} layer; name the module whose output to read by "
                    "features=... (--features), or take a score that reads no features, such as entropy"
                )
        self._handles: list[Any] = []
        self.last: nn.Module | None = None

    def watch(self, module: nn.Module) -> None:
        """Keep the input of this layer from now on, whichever is called last."""
        self._modules = [module]

    @property
    def active(self) -> bool:
        """Whether anything is to be kept."""
        return bool(self.features)

    def __enter__(self) -> Self:
        self._handles = [module.register_forward_hook(self._keep) for module in self._modules]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._kept = None

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(self.features, str):
            found = first_tensor(output)
            self._kept = None if found is None else found.detach().clone()  # a later operation may overwrite it
        elif module in self._modules:
            self._kept, self.last = first_tensor(inputs), module

    def take(self, dimensions: int) -> Tensor | None:
        """Return what the last forward pass left, or None where nothing is to be kept.

        Raises:
            ValueError: It does not have this many dimensions.
        """
        kept, self._kept = self._kept, None
        if not self.active:
            return None
        if kept is None or kept.ndim != dimensions:
            found = "nothing" if kept is None else f"shape {tuple(kept.shape)}"
            what = self.features if isinstance(self.features, str) else f"the last {self._kind.__name__} layer"
            raise ValueError(
                f"features: expected {dimensions} dimensions from {what!r}, found {found}; name another module"
            )
        return kept.detach()
