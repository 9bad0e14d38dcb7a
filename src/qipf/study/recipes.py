"""Training recipes, by network and dataset."""

from __future__ import annotations

from dataclasses import dataclass

from qipf.training.loop import Augment


@dataclass(frozen=True)
class Recipe:
    """Arguments of `qipf.training.train`; `learning_rate` is the peak of the one-cycle schedule."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    augment: Augment = "none"


RECIPES: dict[tuple[str, str], Recipe] = {
    ("lenet", "mnist"): Recipe(epochs=10, batch_size=128, learning_rate=4e-3),
    ("lenet", "kmnist"): Recipe(epochs=10, batch_size=128, learning_rate=4e-3),
    ("lenet", "fashion-mnist"): Recipe(epochs=10, batch_size=128, learning_rate=4e-3),
    ("small-cnn", "digits"): Recipe(epochs=30, batch_size=64, learning_rate=1e-2),
    ("vgg3", "cifar10"): Recipe(25, 250, 5e-3, weight_decay=0.02, augment="crop-flip"),
    ("resnet18", "cifar10"): Recipe(24, 250, 3e-3, weight_decay=0.1, augment="crop-flip"),
    ("mlp-regression", "regression"): Recipe(epochs=1000, batch_size=120, learning_rate=1e-2),
    ("mlp-moons", "two-moons"): Recipe(epochs=200, batch_size=100, learning_rate=1e-2),
}
USUAL_NET = {dataset: net for net, dataset in reversed(RECIPES)}
"""Default network for each dataset; for CIFAR-10, the smaller of the two networks."""


def recipe(net: str, dataset: str) -> Recipe:
    """Return the recipe for a network and a dataset, or else a default recipe."""
    return RECIPES.get((net, dataset), Recipe(epochs=15, batch_size=128, learning_rate=1e-3))
