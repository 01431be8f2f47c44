"""A headless browser with one page, for tests of pages."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = Path(__file__).parents[2] / "explore" / "web" / "report" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"""

# Keys of the WebDriver protocol.
TAB, HOME, ARROW_RIGHT = "\ue004", "\ue011", "\ue014"

# Records forbidden events, from before the page's own script.
WATCH = """
window.violations = [];
window.alerts = [];
window.alert = (text) => window.alerts.push(text);
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


def percent(share: float) -> str:
    """Return a share as the pages write it."""
    value = share * 100
    distance = min(abs(value), abs(100 - value))
    digits = 0 if distance == 0 else 3 if distance < 0.1 else 2 if distance < 1 else 1
    return f"{value:.{digits}f}"


class Page:
    """A browser with one page."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder

    def open(self, text: str, width: int = 1280, theme: str = "light") -> None:
        """Show a page."""
        path = self.folder / "page.html"
        path.write_text(text, encoding="utf-8")
        self.resize(width)
        self.media("prefers-color-scheme", theme)
        self.log("browser")
        self.log("performance")
        self.browser.get(path.as_uri())
        self.settle()

    def visit(self, url: str, width: int = 1280, theme: str = "light") -> None:
        """Load a page of a server, even if only the part of the address behind ``#`` differs."""
        self.resize(width)
        self.media("prefers-color-scheme", theme)
        self.browser.get("about:blank")
        self.browser.get(url)

    def settle(self) -> None:
        """Wait for the frame in which charts draw after a change of size."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));"
        )

    def resize(self, width: int) -> None:
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, feature: str, value: str, kind: str = "") -> None:
        features = [{"name": feature, "value": value}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})

    def js(self, body: str, *arguments: Any) -> Any:
        return self.browser.execute_script(body, *arguments)

    def wait(self, body: str, *arguments: Any, timeout: float = 60) -> Any:
        """Wait until a script returns a true value, and return it."""
        end = time.monotonic() + timeout
        while not (found := self.js(body, *arguments)):
            assert time.monotonic() < end, f"after {timeout} s still false: {body} {arguments}"
            time.sleep(0.01)
        return found

    def find(self, selector: str) -> Any:
        """Wait for the first element of a selector, and return it."""
        self.wait("return document.querySelector(arguments[0])", selector)
        return self.browser.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        """Click on the first element of a selector, which the page may replace meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        for attempt in range(20):
            try:
                element = self.find(selector)
                self.js("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
                element.click()
                return
            except StaleElementReferenceException:
                if attempt == 19:
                    raise

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return the browser's messages since the last call."""
        entries: list[dict[str, Any]] = self.browser.get_log(kind)
        return entries

    def requests(self) -> list[str]:
        """Return the URLs that the page requested, apart from itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        own = self.browser.current_url.partition("#")[0]
        return [url for url in sent if not url.startswith("data:") and url.partition("#")[0] != own]

    def assert_quiet(self) -> None:
        """Check that the page sent no request, logged nothing and broke no rule of its policy."""
        assert self.log("browser") == []
        assert self.js("return window.violations") == []
        assert self.js("return window.alerts") == []
        assert self.requests() == []

    def press(self, key: str) -> None:
        from selenium import webdriver

        webdriver.ActionChains(self.browser, duration=0).send_keys(key).perform()

    def axe(self) -> list[Any]:
        """Return the violations of accessibility that axe-core finds."""
        if not AXE.is_file():
            pytest.skip("axe-core is not there: run make page")
        if not self.js("return 'axe' in window"):
            self.js(AXE.read_text(encoding="utf-8"))
        found: list[Any] = self.browser.execute_async_script(
            """const done = arguments[0];
            axe.run({resultTypes: ["violations"]}).then((result) => done(result.violations.map((each) =>
              [each.id, each.impact, each.nodes.length, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 300)),
                each.nodes[0].failureSummary])), (error) => done([String(error)]));"""
        )
        return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    pytest.importorskip("selenium", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed: run make browser")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    yield Page(browser, tmp_path_factory.mktemp("page"))
    browser.quit()
