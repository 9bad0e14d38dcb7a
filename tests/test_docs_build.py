"""The documentation builds without a warning, and no link inside it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from browsing import emulate, violations
from sharing import made_once

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (
    "index",
    "howto/decide",
    "pictures",
    "mathematics",
    "results/real-networks",
    "reference/scores",
    "reproduction",
)
"""One page or two with each thing that a page may have: code, pictures, formulas, wide tables, signatures."""
LOOKS = ((1280, "light"), (400, "dark"))
CELLS = "<p>1</p>" * 40  # all of one look
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

    def build(target: Path) -> None:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
        trees = tmp_path_factory.mktemp("doctrees")
        done = subprocess.run([*command, "-d", trees, DOCS, target], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "site", build)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_page_is_built(site):
    pages = [path for path in DOCS.rglob("*.md") if path.parent.name != "images"]
    assert len(pages) > 20
    for page in pages:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page


@pytest.mark.slow
@pytest.mark.thorough
def test_the_version_and_the_changelog_are_shown(site):
    assert f"qipf {version('qipf')}" in (site / "index.html").read_text()
    page = (site / "changelog.html").read_text()
    headings = re.findall(r"^## (.+)$", (DOCS.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings
    assert all(f"<h2>{heading}<" in page for heading in headings)


@pytest.mark.slow
@pytest.mark.thorough
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
@pytest.mark.thorough
def test_reference_shows_the_docstrings(site):
    page = (site / "reference" / "fields.html").read_text()
    assert "information potential field of samples" in page
    assert "system-message" not in page


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.browser
@pytest.mark.parametrize("page", PAGES)
def test_everybody_can_read_it(site, browser, page):
    for width, scheme in LOOKS:
        emulate(browser, width, scheme)
        browser.get((site / f"{page}.html").as_uri())
        assert violations(browser) == [], (width, scheme)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.browser
def test_no_page_scrolls_sideways(site, browser):
    wide = []
    for width, scheme in LOOKS:
        emulate(browser, width, scheme)
        for page in sorted(DOCS.rglob("*.md")):
            if page.parent.name == "images":
                continue
            browser.get((site / page.relative_to(DOCS)).with_suffix(".html").as_uri())
            if browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth"):
                wide.append((page.name, width))
    assert wide == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("<p style='color: #999'>pale</p>", "color-contrast"),
        (f"{CELLS}<p hidden style='color: #999'>1</p><p style='color: #999'>pale</p>", "color-contrast"),
        (f"{CELLS}<div style='background: #666'><p>hard</p></div>{CELLS}", "color-contrast"),
        (f"{CELLS}<div style='opacity: 0.4'><p>hard</p></div>{CELLS}", "color-contrast"),
        ("<p>text</p><img src='data:,'>", "image-alt"),
        ("<p>text</p><input>", "label"),
    ],
)
def test_what_somebody_cannot_read_is_found(tmp_path, browser, body, rule):
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html lang='en'><head><title>page</title></head><body>{body}</body></html>")
    emulate(browser)
    browser.get(page.as_uri())
    assert [found.split(":")[0] for found in violations(browser)] == [rule]


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
