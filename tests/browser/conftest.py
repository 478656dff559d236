"""Headless Chromium for the browser tests: one for all, a tab without a past for each."""

import shutil
from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

_PHONE = (390, 844)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    assert program, "no Chromium on this machine: apt-get install chromium"
    assert driver, "no chromedriver on this machine: apt-get install chromium-driver"
    options = ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size={},{}".format(*_PHONE),
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def browser(chromium: Chrome) -> Iterator[Chrome]:
    """A new tab of a phone's size; cookies, storage and injected scripts of earlier ones are gone.

    It is closed at the end, and with it every stream that would keep a web process from stopping.
    """
    first = chromium.current_window_handle
    chromium.switch_to.new_window("tab")
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    chromium.set_window_size(*_PHONE)
    chromium.get_log("browser")  # of others
    try:
        yield chromium
    finally:
        for handle in chromium.window_handles:
            if handle != first:
                chromium.switch_to.window(handle)
                chromium.close()
        chromium.switch_to.window(first)
