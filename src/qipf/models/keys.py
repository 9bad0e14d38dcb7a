"""The keys under which a dict of data is expected to hold its inputs and its labels."""

LABELS = ("labels", "label", "targets", "target", "y")
INPUTS = ("inputs", "input", "x", "images", "image", "pixel_values", "data")
MASK = "attention_mask"
