"""Chromium without a screen, and what it asked for and complained about."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Browser:
    def __init__(self, driver: Any, width: int) -> None:
        self.driver = driver
        self._width = width

    def check(self, own: str) -> None:
        """No error on the console, no request but to `own`, and no scrolling sideways."""
        wide = "return [document.documentElement.scrollWidth, window.innerWidth]"
        page, window = self.driver.execute_script(wide)
        assert page <= window == self._width
        assert self.driver.get_log("browser") == []
        events = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert urls
        assert all(url.startswith((own, "data:")) for url in urls), urls


@contextmanager
def chromium(width: int, height: int) -> Iterator[Browser]:
    """A window of that size; a phone's below 500 pixels of width."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    for argument in ("headless=new", "no-sandbox", f"window-size={width},{height}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    with Chrome(options=options, service=Service("/usr/bin/chromedriver")) as driver:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield Browser(driver, width)
