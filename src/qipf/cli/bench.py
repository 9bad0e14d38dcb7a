"""`qipf bench`: run a benchmark, or verify its store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli.arguments import QUIET, check_at_least, usable_device
from qipf.cli.options import OptionalOutput
from qipf.study.run.store import RefusedError

if TYPE_CHECKING:
    from qipf.study.plan.plan import Plan


def bench(
    plan: str = "demo",
    /,
    *,
    output: OptionalOutput = None,
    engine: str = "auto",
    data: Path | None = None,
    workers: int | None = None,
    device: str | None = None,
    times: Annotated[bool, Parameter(negative="--no-times")] = True,
    verify: bool = False,
) -> int:
    """Measure how well scores detect the errors of a model under distribution shift.

    Finished parts of the benchmark (cells) are stored in the output folder; run the same command again to resume. Only
    one process at a time can write to a folder. A plan with your own model executes its code.

    For example:

    ```
    qipf bench
    qipf bench mnist --data ~/data --output results/mnist
    qipf bench my-plan.toml --engine tcp://scheduler:8786 -o /shared/results
    ```

    Args:
        plan: A built-in plan (demo, mnist, kmnist, cifar10-vgg3, cifar10-resnet18, paper) or a TOML file.
        output: The folder for the results; by default, bench-PLAN.
        engine: auto, local (processes), serial, or the address of a Dask scheduler whose workers can access the output
            folder.
        data: The folder of dataset files; by default, $QIPF_DATA. Missing files are downloaded.
        workers: The number of local processes; by default, one per core.
        device: cpu or cuda; by default, cuda if available.
        times: Measure the time per sample; --no-times postpones this to a later run.
        verify: Only verify the results, and list damaged and missing files.
    """
    if verify:
        return _verify(output or Path(f"bench-{_load(plan).name}"))
    require("joblib", extra="bench")
    from rich.console import Console

    from qipf.study.run.executors import ENGINES
    from qipf.study.run.run import run_plan
    from qipf.study.tables.terminal import results_text

    if device not in (None, "cpu", "cuda"):
        raise UserError(f"--device: expected cpu or cuda, got {device!r}")
    if device is not None and "://" not in engine:  # cluster workers may have a GPU even if this machine has none
        usable_device(device)
    check_at_least("--workers", workers, 1)
    if engine not in ENGINES and "://" not in engine:
        raise UserError(f"--engine: expected {', '.join(ENGINES)} or the address of a Dask scheduler, got {engine!r}")
    chosen = _load(plan)
    store = output or Path(f"bench-{chosen.name}")
    try:
        report, notes = run_plan(
            chosen, store, engine=engine, device=device, data=data, workers=workers, times=times, quiet=QUIET.get()
        )
    except RefusedError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        print(f"interrupted; finished cells are in {store}; run the same command again to continue", file=sys.stderr)
        return 130
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{report.done} cells run, {report.reused} reused; results in {store}\n")
    print(f"{results_text(store, Console().width)}\n\nReport: qipf report {store} --output report.html")
    if report.complete:
        return 0
    for failure in report.failed:
        print(f"failed: {failure['label']}: {' '.join(failure['error'].split())}", file=sys.stderr)
    if report.skipped:
        print(f"cells skipped because they depend on a failed cell: {len(report.skipped)}", file=sys.stderr)
    print(
        f"tracebacks are in {store / 'failed'}; run the same command again to retry the failed cells", file=sys.stderr
    )
    return 1


def _load(plan: str) -> Plan:
    from qipf.study.plan import plan as plans

    try:
        return plans.load(plan)
    except plans.UnknownPlanError as error:
        raise UserError(f"PLAN: {error}") from error
    except plans.PlanError as error:
        raise InputError(f"{plan}: {error}") from error


def _verify(path: Path) -> int:
    from qipf.study.run.store import Store
    from qipf.study.run.verify import damages

    store = Store(path)
    count = 0
    for damage in damages(store):
        print(damage)
        count += 1
    cells = len(store.finished())
    remedy = "run the same plan again to restore them"
    found = f"damaged or missing files: {count}; {remedy}" if count else "all files match their checksums"
    print(f"{path}: finished cells: {cells}; {found}", file=sys.stderr)
    return 1 if count else 0
