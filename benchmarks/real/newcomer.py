"""How long a newcomer needs: run the commands of docs/results/real-networks.md in a fresh environment, with a clock.

    python benchmarks/real/newcomer.py --images DIR --torch SITE_PACKAGES --out results/real/newcomer.json

`--images` holds `photos/train` and `photos/new`, each with a subfolder per class. PyTorch and the other packages that
qipf imports are taken from `--torch`, as the time of downloading them depends on the connection; the record says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "real-networks.md"


def shown_file() -> str:
    """The file `lite.py` as the page shows it."""
    found = re.search(r"^```py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def commands() -> list[str]:
    """The commands of the page, one per line."""
    found = re.search(r"^```bash\n(pip .*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1].strip().splitlines()


def seconds_of(command: str, place: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of the processor."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, shell=True, check=True, cwd=place, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(time.perf_counter() - begin, 1), round(used, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--torch", type=Path, required=True, help="site-packages that has PyTorch")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "real" / "newcomer.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", place / "fresh"], check=True)
        (site,) = (place / "fresh" / "lib").glob("python*/site-packages")
        (site / "torch-there.pth").write_text(f"{chosen.torch.resolve()}\n")
        shutil.copytree(chosen.images / "photos", place / "photos")
        (place / "lite.py").write_text(shown_file())
        path = f"{place / 'fresh' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        steps = {}
        for command in commands():
            command = command.replace("-e '.[torch]'", f"'{ROOT}'").replace("pip install", "pip install --no-deps")
            wall, used = seconds_of(command, place, environment)
            name = "install" if command.startswith("pip") else command.split()[1]
            steps[name] = {"wall_seconds": wall, "processor_seconds": used}
            print(name, steps[name], flush=True)
        counts = {part: len(list((place / "photos" / part).glob("*/*"))) for part in ("train", "new")}
        table = (place / "scores.csv").read_text().splitlines()
        report = (place / "report.html").stat().st_size
    total = {key: round(sum(step[key] for step in steps.values()), 1) for key in ("wall_seconds", "processor_seconds")}
    found = {"steps": steps, "images": counts, "rows": len(table) - 1, "report_bytes": report, "total": total}
    note = "on two cores that other programs used at the same time"
    chosen.out.write_text(json.dumps({**found, "note": note}, indent=1) + "\n")


if __name__ == "__main__":
    main()
