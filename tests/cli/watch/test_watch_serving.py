"""`qipf watch --serve`: a kill loses nothing, and the page in a browser follows the files."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from live_tables import as_csv, columns, draw, measured

from qipf.cli import main


def serving(place: Path) -> tuple[subprocess.Popen[str], str]:
    words = ["watch", "scores", "--reference", "net.qipf", "--port", "0", "--every", "0.2"]
    started = subprocess.Popen(
        [sys.executable, "-m", "qipf", *words], cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert started.stderr is not None
    address = started.stderr.readline().strip()
    assert address.startswith("http://127.0.0.1:"), address
    return started, address


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def until(address: str, rows: int) -> dict[str, float]:
    for _ in range(150):
        found = measured(fetch(f"{address}metrics"))
        if found["qipf_predictions_total"] == rows:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{found} after 15 s, expected {rows} rows")


def test_a_kill_loses_nothing(place: Path, rng) -> None:
    live = columns(draw(rng, 300))
    half = {name: values[:120] for name, values in live.items()}
    Path("scores/a.csv").write_text(as_csv(half))
    first, address = serving(place)
    try:
        before = until(address, 120)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with Path("scores/a.csv").open("a") as file:
        file.write(as_csv({name: values[120:] for name, values in live.items()}, header=False))
    second, address = serving(place)
    try:
        after = until(address, 300)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{address}etc/passwd")
    finally:
        second.kill()
        second.communicate()
    assert before["qipf_labelled_total"] == 120
    assert after["qipf_labelled_total"] == 300


def test_only_this_machine_by_its_own_name_is_answered(place: Path) -> None:
    Path("scores/a.csv").write_text("uncertainty\n0.1\n")
    server, address = serving(place)
    port = int(address.rstrip("/").rpartition(":")[2])
    try:
        for name in (f"127.0.0.1:{port}", f"localhost:{port}"):
            with urllib.request.urlopen(urllib.request.Request(address, headers={"Host": name}), timeout=10) as answer:
                assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(
                urllib.request.Request(address, headers={"Host": f"evil.example:{port}"}), timeout=10
            )
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(100)]  # they say nothing
        assert "qipf watch" in fetch(address)
        for one in waiting:
            one.close()
    finally:
        server.kill()
        server.communicate()


@pytest.mark.browser
def test_the_page_in_a_browser_follows_the_files(place: Path, rng, tmp_path_factory) -> None:
    from browsing import emulate, open_browser, violations

    Path("scores/a.csv").write_text(as_csv(columns(draw(rng, 200))))
    for browser in open_browser(tmp_path_factory.mktemp("profile")):
        from selenium.webdriver.support.wait import WebDriverWait

        process, address = serving(place)
        try:
            until(address, 200)
            browser.get(address)
            # one script for each look: the page may be loaded again between two calls
            seen = browser.execute_script(
                "const bars = [...document.querySelectorAll('svg[aria-label$=bin] rect')].map(b => b.getBBox().height);"
                "return [rows.innerText, state.innerText, document.querySelectorAll('svg').length, Math.max(...bars)]"
            )
            assert "200" in seen[0]
            assert "No alarm" in seen[1]
            assert seen[2] == 3
            assert seen[3] > 30
            with Path("scores/a.csv").open("a") as file:
                file.write(as_csv(columns(draw(rng, 1500, scale=0.5)), header=False))
            WebDriverWait(browser, 20, ignored_exceptions=[Exception]).until(
                lambda opened: "Alarm" in opened.execute_script("return state.innerText")
            )
            assert "1,700" in browser.execute_script("return rows.innerText")
            assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []
        finally:
            process.kill()
            process.communicate()
        assert main(["watch", "scores", "--reference", "net.qipf", "--once", "-o", "page.html"]) == 3
        for scheme in ("light", "dark"):
            emulate(browser, 400, scheme)
            browser.get((place / "page.html").as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
            assert violations(browser) == []
