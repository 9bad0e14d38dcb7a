"""`qipf bench`: run a study, or verify its store."""

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
    """Measure how well uncertainties detect the errors of a model under distribution shift.

    PLAN is the name of a shipped plan (demo, mnist, kmnist, cifar10-vgg3, cifar10-resnet18, paper) or a TOML file.
    Finished cells are kept in a folder, the store: if the command is stopped, running it again resumes where it
    stopped. Only one process can write to a store at a time. A plan with your own model executes its code.

    For example:

    ```
    qipf bench
    qipf bench mnist --data ~/data --output results/mnist
    qipf bench my-plan.toml --engine tcp://scheduler:8786 -o /shared/results
    qipf bench --verify --output results/mnist
    ```

    Args:
        plan: The name of a shipped plan, or a TOML file.
        output: The folder of the results; bench-NAME by default.
        engine: auto, local (processes), serial, or the address of a Dask scheduler (with the store on a shared file
            system).
        data: The folder of dataset files; QIPF_DATA by default. Missing files are downloaded.
        workers: The number of local processes; by default one per core.
        device: cpu or cuda; by default cuda if available.
        times: Measure the time per sample; --no-times leaves this to a later run on an idle machine.
        verify: Only verify the checksums of the files in the store, and list those that are damaged or missing.
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
        print(f"interrupted; finished cells are in {store}, and the same command continues from there", file=sys.stderr)
        return 130
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{report.done} cells run, {report.reused} kept from before; results in {store}\n")
    print(f"{results_text(store, Console().width)}\n\nReport: qipf report {store} --output report.html")
    if report.complete:
        return 0
    for failure in report.failed:
        print(f"failed: {failure['label']}: {' '.join(failure['error'].split())}", file=sys.stderr)
    if report.skipped:
        print(f"{len(report.skipped)} cells were skipped because they need a failed one", file=sys.stderr)
    print(f"tracebacks are in {store / 'failed'}; the same command tries the failed cells again", file=sys.stderr)
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
    found = f"{count} damaged; run the same plan again to compute them again" if count else "every file is as written"
    print(f"{path}: {cells} cells, {found}", file=sys.stderr)
    return 1 if count else 0
