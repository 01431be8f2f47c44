"""Make the README's pictures again: ``.venv/bin/python docs/images/make.py``.

It plays seeded games, writes a report and a replay with the real commands, and takes pictures of both pages in
Chromium, which ``make browser`` installs. It takes about a minute.
"""

from __future__ import annotations

import base64
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from selenium import webdriver

import a2store

IMAGES = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1000, 575
MAX_BYTES = 120_000
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def command(line: str, folder: Path) -> None:
    """Run a command of a2store in a folder."""
    subprocess.run([sys.executable, "-m", "a2store", *shlex.split(line)], cwd=folder, check=True)


def pages(folder: Path) -> dict[str, str]:
    """Write a report and a replay of three engines' games, and return the addresses of both pages."""
    for depth, engine in enumerate(("greedy", "one move ahead", "two moves ahead")):
        command(f"simulate --runs 40 --seed {depth} --depth {depth} --label '{engine}' -o 'runs/{engine}'", folder)
    command("ingest runs games.a2", folder)
    command("report games.a2 -o report.html", folder)
    best = a2store.open(folder / "games.a2").sql("SELECT run_id FROM runs ORDER BY max_score DESC, run_id LIMIT 1")
    run = best.to_arrow()["run_id"][0].as_py()
    command(f"replay games.a2 {run} -o replay.html", folder)
    report, replay = ((folder / f"{name}.html").as_uri() for name in ("report", "replay"))
    return {"report": f"{report}#scores", "replay": f"{replay}#/run/{run}/step/4000"}


def browse() -> webdriver.Chrome:
    """Start Chromium."""
    options = webdriver.ChromeOptions()
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            options.binary_location = found
            break
    for flag in FLAGS:
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


# The element at the top of each picture. The page of the report is wide enough for two charts in a row.
TOPS = {"report": ("#scores h2", 1240), "replay": ("h1", WIDTH)}


def picture(browser: webdriver.Chrome, address: str, top: str, width: int, theme: str) -> bytes:
    """Return a picture of the part of a page that begins at an element."""
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")
    browser.get(address)
    # The replay shows its step, and the report draws its charts, in a later frame.
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 500)));"
    )
    x, y = browser.execute_script(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left + scrollX, box.top + scrollY];",
        top,
    )
    clip = {"x": max(x - 15, 0), "y": max(y - 10, 0), "width": WIDTH, "height": HEIGHT, "scale": 1}
    taken = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "webp", "quality": 85, "clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(taken["data"])


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        addresses = pages(Path(folder))
        browser = browse()
        try:
            for name, address in addresses.items():
                for theme in ("light", "dark"):
                    data = picture(browser, address, *TOPS[name], theme)
                    assert len(data) <= MAX_BYTES, f"{name}-{theme}: {len(data):,} bytes, at most {MAX_BYTES:,}"
                    (IMAGES / f"{name}-{theme}.webp").write_bytes(data)
                    print(f"{name}-{theme}.webp: {len(data):,} bytes")
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
