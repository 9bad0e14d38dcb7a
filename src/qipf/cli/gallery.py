"""`qipf gallery`: the paper's illustrations, computed and drawn again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli.arguments import check_at_least

if TYPE_CHECKING:
    from qipf.study.gallery import Plate
    from qipf.tasks.outputs import Outputs


def gallery(
    *names: str,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    dark: bool = False,
    seeds: int = 5,
    scorer: Path | None = None,
    outputs: Path | None = None,
    dataset: str = "digits",
    data: Path | None = None,
    quiet: bool = False,
) -> None:
    """Draw the figures of the gallery: SVG, PNG, the numbers as CSV, and a caption.

    NAMES are any of views, sine, regression, moons, regularisation, corruptions and field; by default all of them,
    which takes a few minutes. Each figure gets a folder of its own below the output folder.

    For example:

    ```
    qipf gallery -o figures
    qipf gallery sine moons -o figures --dark
    qipf gallery field --scorer lenet.qipf --outputs test.npz -o figures
    qipf gallery views corruptions --dataset mnist --data ~/data -o figures
    ```

    Args:
        names: Which figures to draw; all by default.
        output: The folder to write to; it is created if it does not exist.
        dark: Also draw every figure for dark pages (NAME-dark.svg, NAME-dark.png).
        seeds: How many seeds the tables of regression, moons and regularisation cover.
        scorer: For field: a file that `qipf fit` wrote with the scorer weight-qipf; without it, a small network is
            trained on the bundled digits.
        outputs: For field: an .npz file with logits, and optionally labels, to draw the predictions as well.
        dataset: For views and corruptions: the dataset whose images are drawn.
        data: For views and corruptions: the folder with the files of that dataset.
        quiet: Show no progress bar and no list of files.
    """
    require("matplotlib", extra="bench")
    from qipf.study.gallery import FIGURES

    for name in names:
        if name not in FIGURES:
            about = "; ".join(f"{known}: {what}" for known, what in FIGURES.items())
            raise UserError(f"NAMES: there is no figure {name!r}; there are {about}")
    check_at_least("--seeds", seeds, 1)
    if not names or {"views", "corruptions"} & set(names):
        from qipf.study import datasets

        if dataset not in datasets.NAMES:
            raise UserError(f"--dataset: there is no {dataset!r}; there are {', '.join(datasets.NAMES)}")
    if scorer is None and outputs is not None:
        raise UserError("--outputs belongs to a --scorer; give --scorer as well")
    if output.exists() and not output.is_dir():
        raise InputError(f"--output: {output} is a file; give a folder")
    for name in names or tuple(FIGURES):
        if name == "field":
            plate = _field(scorer, outputs)
        elif name in ("views", "corruptions"):
            from qipf.study.gallery import corruptions, views

            plate = (views if name == "views" else corruptions).plate(dataset, data)
        else:
            plate = _example(name, seeds, progress=not quiet)
        files = plate.write(output, dark=dark)
        if not quiet:
            print(f"{files[0].parent}: {', '.join(file.name for file in files)}", file=sys.stderr)


def _example(name: str, seeds: int, *, progress: bool) -> Plate:
    if name == "sine":
        from qipf.study.gallery import sine

        return sine.plate()
    from qipf.study.gallery import moons, regression, regularisation

    modules = {"regression": regression, "moons": moons, "regularisation": regularisation}
    return modules[name].plate(seeds, progress=progress)


def _field(file: Path | None, outputs: Path | None) -> Plate:
    from qipf.study.gallery import field

    if file is None:
        return field.plate()
    from qipf.scores import WeightQIPF
    from qipf.scores.field_figure import view
    from qipf.scores.saving import load

    scorer = load(file)
    if not isinstance(scorer, WeightQIPF):
        raise InputError(
            f"--scorer: {file} holds {scorer.name}, and this figure needs weight-qipf, whose field is a curve; "
            "fit one with `qipf fit --scorer weight-qipf`"
        )
    return field.plate(view(scorer, _read_outputs(outputs)), f"`{file.name}`")


def _read_outputs(path: Path | None) -> Outputs | None:
    if path is None:
        return None
    from qipf.data.reading import open_data
    from qipf.tasks.outputs import Outputs

    arrays = open_data(path, None).arrays
    if "logits" not in arrays:
        raise InputError(f"--outputs: {path} has no array named logits; it has {', '.join(arrays) or 'none'}")
    return Outputs(arrays["logits"], None, arrays.get("labels"))
