"""The keys under which a dict of data is expected to hold its inputs and its labels."""

from __future__ import annotations

from collections.abc import Container

LABELS = ("labels", "label", "targets", "target", "y")
INPUTS = ("inputs", "input", "x", "images", "image", "pixel_values", "data")
MASK = "attention_mask"


def mask_key(names: Container[str]) -> str:
    """The name of the mask of predicted tokens: of a model with a decoder, that of its own tokens."""
    return f"decoder_{MASK}" if "decoder_input_ids" in names else MASK
