"""A real browser for tests, and what axe-core finds wrong with a page in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
CHECKED = {"color-contrast", "document-title", "html-has-lang"}
"""Rules that apply to every page: where one of them has not passed or failed, axe has not looked."""
LIKE = 4
"""How many elements of the same look are checked for contrast."""
RUN = """
const [rules, like, done] = arguments;
// Nearly all time goes into contrast, which follows from the text's style and what is painted behind it. Axe looks at
// some elements of each such look rather than at thousands of cells of a table; other rules look at every element.
const looks = {};
for (const element of document.querySelectorAll("body *")) {
  const written = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  if (!written || !element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
  const own = getComputedStyle(element), look = [own.color, own.fontSize, own.fontWeight, own.textShadow];
  for (let at = element; at; at = at.parentElement) {
    const {backgroundColor, backgroundImage, opacity, position} = getComputedStyle(at);
    const painted = [backgroundColor, backgroundImage, opacity].join(" ");
    if (painted !== "rgba(0, 0, 0, 0) none 1" || position !== "static") look.push(painted, position);
  }
  (looks[look.join()] ||= []).push(element);
}
const length = element => element.textContent.trim().length;  // of a single character, axe is not sure
const shown = Object.values(looks).flatMap(found => found.sort((a, b) => length(b) - length(a)).slice(0, like));
// Only of what is wrong does every element have to be described.
const settings = {resultTypes: ["violations"]};
axe.run(document, {...settings, runOnly: rules, rules: {"color-contrast": {enabled: false}}})
  .then(async most => [most, await axe.run({include: shown}, {...settings, runOnly: ["color-contrast"]})])
  .then(found => done({
    violations: found.flatMap(part => part.violations),
    applied: found.flatMap(part => [...part.passes, ...part.violations]).map(rule => rule.id),
  }), done);
"""


def open_browser(profile: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    from selenium.webdriver.chrome.service import Service

    opened = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    opened.set_script_timeout(120)  # axe takes a while on a long page
    yield opened
    opened.quit()


def emulate(browser: Any, width: int = 1280, scheme: str = "light", media: str = "screen") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def violations(browser: Any) -> list[str]:
    """What WCAG 2.1 AA forbids on the page that is open: contrast, missing alternative texts, labels, ..."""
    script = pytest.importorskip("axe_core_python.base", reason="axe-core-python is not installed").AXE_SCRIPT
    browser.execute_script(script)
    found = browser.execute_async_script(RUN, RULES, LIKE)
    applied = set(found["applied"])
    assert applied >= CHECKED, applied
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
