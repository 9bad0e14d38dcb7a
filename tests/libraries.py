"""The array libraries through which the core is tested."""

from __future__ import annotations

import array_api_strict
import jax
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)

LIBRARIES = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jax.numpy.asarray,
    "strict": array_api_strict.asarray,
}
