"""Copy the figures and captions of the gallery into the documentation.

qipf research gallery --output figures
QIPF_DATA=FOLDER qipf research gallery corruptions --dataset mnist --output figures
python docs/update_images.py figures
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def main(figures: Path) -> None:
    """Copy the PNG files and the caption of each figure to docs/images."""
    images = Path(__file__).parent / "images"
    images.mkdir(exist_ok=True)
    for folder in sorted(path for path in figures.iterdir() if path.is_dir()):
        for name in (f"{folder.name}.png", f"{folder.name}-dark.png"):
            shutil.copyfile(folder / name, images / name)
        shutil.copyfile(folder / "caption.md", images / f"{folder.name}.md")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
