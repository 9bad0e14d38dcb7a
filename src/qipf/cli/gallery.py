"""`qipf research gallery`: compute and draw the illustrations of the paper."""

from __future__ import annotations

import sys
from importlib import import_module

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli.arguments import QUIET
from qipf.cli.options import Output


def gallery(*names: str, output: Output, dataset: str = "digits") -> None:
    """Draw figures for light and dark pages, each with a caption and its data as CSV.

    For example:

    ```
    qipf research gallery --output figures
    QIPF_DATA=~/data qipf research gallery corruptions --dataset mnist -o figures
    ```

    Args:
        names: The figures to draw (sine, corruptions); all by default.
        output: The folder to write to, with one subfolder per figure.
        dataset: The dataset for the `corruptions` figure: digits (bundled), or an image dataset in $QIPF_DATA.
    """
    require("matplotlib", extra="bench")
    from qipf.study import datasets
    from qipf.study.gallery import FIGURES

    for name in names:
        if name not in FIGURES:
            about = "; ".join(f"{known}: {what}" for known, what in FIGURES.items())
            raise UserError(f"NAMES: there is no figure {name!r}; available: {about}")
    if dataset not in datasets.NAMES:
        raise UserError(f"--dataset: there is no dataset {dataset!r}; available: {', '.join(datasets.NAMES)}")
    if output.exists() and not output.is_dir():
        raise InputError(f"--output: {output} is a file; choose a folder")
    for name in names or tuple(FIGURES):
        module = import_module(f"qipf.study.gallery.{name}")
        plate = module.plate(dataset) if name == "corruptions" else module.plate()
        files = plate.write(output, dark=True)
        if not QUIET.get():
            print(f"{files[0].parent}: {', '.join(file.name for file in files)}", file=sys.stderr)
