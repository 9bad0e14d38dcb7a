"""Compute the tables and numbers that README.md, docs and benchmarks/README.md quote from results/.

python benchmarks/reproduction.py              # lists the marks that are out of date
python benchmarks/reproduction.py --write      # draws the figures and updates the pages
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evidence import figures, marks, pages
from evidence.results import ROOT, Results


def main() -> int:
    """Check or update the pages; return 1 if a page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--write", action="store_true", help="update the figures and pages")
    given = parser.parse_args()
    results = Results(given.results)
    render = pages.renderer(results)
    if given.write:
        for file in figures.write(results, ROOT / "docs" / "images"):
            print(f"{file}: {file.stat().st_size / 1e3:.0f} kB")
        for page in pages.PAGES.values():
            page.write_text(marks.written(page.read_text(), render))
        return 0
    stale = [f"{name}: {mark}" for name, page in pages.PAGES.items() for mark in marks.stale(page.read_text(), render)]
    print("\n".join(stale) if stale else "every page is up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
