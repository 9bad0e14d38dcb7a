"""The documentation builds without a warning, and no link inside it leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).parents[1] / "docs"
LARGEST_IMAGE, ALL_IMAGES = 300_000, 1_500_000  # bytes


class Page(HTMLParser):
    """Collects where a page links to, and what on it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and name in ("href", "src") and tag in ("a", "img", "link", "script"):
                self.links.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path_factory.mktemp("doctrees")), str(DOCS), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_every_page_is_built(site):
    pages = [path for path in DOCS.rglob("*.md") if path.parent.name != "images"]
    assert len(pages) > 20
    for page in pages:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page


@pytest.mark.slow
def test_links_inside_lead_somewhere(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, broken
    assert sum(len(page.links) for page in pages.values()) > 200


@pytest.mark.slow
def test_reference_shows_the_docstrings(site):
    page = (site / "reference" / "fields.html").read_text()
    assert "information potential field of samples" in page
    assert "system-message" not in page


def test_images_are_small_and_every_figure_has_both_palettes():
    from qipf.study.gallery import FIGURES

    sizes = [image.stat().st_size for image in (DOCS / "images").glob("*.png")]
    assert max(sizes) < LARGEST_IMAGE
    assert sum(sizes) < ALL_IMAGES
    page = (DOCS / "pictures.md").read_text()
    for name in FIGURES:
        for file in (f"{name}.png", f"{name}-dark.png", f"{name}.md"):
            assert (DOCS / "images" / file).is_file(), f"{file}: see docs/update_images.py"
            assert f"images/{file}" in page, file
