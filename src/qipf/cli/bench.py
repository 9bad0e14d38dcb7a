"""`qipf bench`: run a benchmark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from qipf._common.errors import InputError, UserError, check_at_least
from qipf._common.optional import require
from qipf.cli._device import usable_device


def bench(
    plan: str = "demo",
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    engine: str = "auto",
    data: Path | None = None,
    workers: int | None = None,
    device: str | None = None,
    times: bool = True,
    quiet: bool = False,
) -> int:
    """Measure how well uncertainties find a model's errors when the data shifts.

    PLAN is the name of a shipped plan (demo, mnist, kmnist, cifar10-vgg3, cifar10-resnet18, paper) or a TOML file.
    Everything that is finished is kept in the store: stop it any way you like, and the same command goes on where it
    was. A plan that names a model of your own runs that model's code.

    For example:

    ```
    qipf bench                                    # bundled digits, every method, about a minute
    qipf bench mnist --data ~/data -o results/mnist
    qipf bench my-plan.toml --engine tcp://scheduler:8786 -o /shared/results
    ```

    Exit codes: 0 all cells have results, 1 some failed (the others are there) or a file is bad, 2 wrong use,
    130 interrupted (Ctrl-C).

    Args:
        plan: name of a shipped plan, or a TOML file.
        output: folder of the results; bench-NAME by default.
        engine: auto, local (processes), serial, or a Dask scheduler's address (with the store on a shared file system).
        data: folder with dataset files; without it they are looked for in QIPF_DATA, then downloaded.
        workers: number of local processes; one a core by default.
        device: cpu or cuda; cuda where there is one by default.
        times: measure the time per sample as well; --no-times leaves that to a later run on an idle machine.
        quiet: print nothing but failures and the summary.
    """
    require("joblib", extra="bench")
    from qipf.study.plan import plan as plans
    from qipf.study.run.engines import ENGINES
    from qipf.study.run.run import run_plan

    if device not in (None, "cpu", "cuda"):
        raise UserError(f"--device: expected cpu or cuda, got {device!r}")
    if device is not None and "://" not in engine:  # a cluster's workers may have a GPU where this machine has none
        usable_device(device)
    check_at_least("--workers", workers, 1)
    if engine not in ENGINES and "://" not in engine:
        raise UserError(f"--engine: expected {', '.join(ENGINES)} or the address of a Dask scheduler, got {engine!r}")
    try:
        chosen = plans.load(plan)
    except plans.UnknownPlanError as error:
        raise UserError(f"PLAN: {error}") from error
    except plans.PlanError as error:
        raise InputError(f"{plan}: {error}") from error
    store = output or Path(f"bench-{chosen.name}")
    try:
        report, notes = run_plan(
            chosen, store, engine=engine, device=device, data=data, workers=workers, times=times, quiet=quiet
        )
    except KeyboardInterrupt:
        print(f"interrupted; what is finished is in {store}, and the same command goes on from there", file=sys.stderr)
        return 130
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{report.done} cells run, {report.reused} kept from before; results in {store}")
    if report.complete:
        return 0
    for failure in report.failed:
        print(f"failed: {failure['label']}: {' '.join(failure['error'].split())}", file=sys.stderr)
    if report.skipped:
        print(f"{len(report.skipped)} cells were skipped because they need a failed one", file=sys.stderr)
    print(f"tracebacks are in {store / 'failed'}; the same command tries the failed cells again", file=sys.stderr)
    return 1
