"""The story of a purchase in headless Chromium, against a real web process."""

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.fixtures.purchases import purchases

pytestmark = pytest.mark.browser


def test_an_operator_finds_a_purchase_by_any_id_and_reads_its_whole_story(
    browser: Chrome, web_server: str
) -> None:
    made = purchases()
    User.objects.create_superuser("root", password="a-long-password")
    browser.set_window_size(1400, 1000)
    browser.get(f"{web_server}/admin/orders/order/story/")
    browser.find_element(By.NAME, "username").send_keys("root")
    browser.find_element(By.NAME, "password").send_keys("a-long-password")
    browser.find_element(By.CSS_SELECTOR, "[type=submit]").click()

    box = WebDriverWait(browser, 20).until(lambda b: b.find_element(By.ID, "story-id"))
    box.send_keys(made.paid.request_id)
    box.submit()

    head = WebDriverWait(browser, 20).until(
        lambda b: b.find_element(By.CSS_SELECTOR, ".story-head h2")
    )
    assert head.text == "ORDERED · PAID"
    line = browser.find_elements(By.CSS_SELECTOR, ".story-line li")
    assert "Reserved at the gate" in line[0].text
    assert len(line) > 10
    # The page never scrolls sideways, on a desk or on a telephone.
    for width in (1400, 390):
        browser.set_window_size(width, 1000)
        _shoot(browser, f"story-{width}")
        wide = browser.execute_script(
            "const b = document.querySelector('.story-head').getBoundingClientRect();"
            "return b.right - window.innerWidth"
        )
        assert wide <= 0
    severe = [log["message"] for log in browser.get_log("browser") if log["level"] == "SEVERE"]
    assert [message for message in severe if "favicon.ico" not in message] == []


def _shoot(browser: Chrome, name: str) -> None:
    folder = os.environ.get("SECKILL_SCREENSHOTS")
    if folder:
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(browser.get_window_size()["width"], height + 150)
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))
