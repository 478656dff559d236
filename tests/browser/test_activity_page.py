"""The activity page in headless Chromium against a real web process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from orders.cancel_order import cancel_by_user
from tests.fixtures.sales import Sale, run_projection

pytestmark = pytest.mark.browser


def wait(browser: Chrome, check: Callable[[Chrome], Any], what: str) -> Any:
    return WebDriverWait(browser, 20, poll_frequency=0.05).until(check, what)


def state(browser: Chrome) -> str:
    return (
        browser.find_element(By.CSS_SELECTOR, "[data-status-box]").get_attribute("data-state") or ""
    )


def shoot(browser: Chrome, name: str) -> None:
    folder = os.environ.get("SECKILL_SCREENSHOTS")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


def test_buyer_logs_in_buys_and_sees_the_order_live(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    browser.get(web_server)
    shoot(browser, "start")
    browser.find_element(By.CSS_SELECTOR, "a.sale").click()
    browser.find_element(By.LINK_TEXT, "Log in to buy").click()
    browser.find_element(By.NAME, "user_id").send_keys("alice")
    shoot(browser, "login")
    browser.find_element(By.CSS_SELECTOR, "main button").click()

    buy = wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "[data-buy]"), "a buy button")
    assert "Ends in" in browser.find_element(By.ID, "clock").text
    shoot(browser, "before")
    buy.click()
    wait(browser, lambda b: state(b) == "QUEUED", "QUEUED")
    shoot(browser, "queued")
    assert list(sale.holders()) == ["alice"]
    assert not buy.is_enabled()

    (reservation_id,) = sale.holders().values()
    (reservation,) = sale_reservations(sale, reservation_id)
    sale.deliver(reservation)
    run_projection()
    wait(browser, lambda b: state(b) == "ORDERED", "ORDERED, told by the event stream")
    shoot(browser, "ordered")
    browser.find_element(By.CSS_SELECTOR, "[data-pay]").click()
    wait(browser, lambda _: sale.order_status(reservation) == "PAID", "a paid order")
    run_projection()
    wait(browser, lambda b: state(b) == "PAID", "PAID, told by the event stream")
    shoot(browser, "paid")

    browser.refresh()
    wait(browser, lambda b: state(b) == "PAID", "the same state after a reload")
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    # Before buying there is no reservation: that 404 is an answer, not an error.
    assert [entry for entry in severe if "/reservation " not in entry["message"]] == []


def test_cancelled_order_frees_the_button(browser: Chrome, sale: Sale, web_server: str) -> None:
    reservation = sale.reserve("bob")
    sale.deliver(reservation)
    log_in(browser, web_server, sale, "bob")
    wait(browser, lambda b: state(b) == "ORDERED", "the order of an earlier visit")

    cancel_by_user(order_id=reservation.order_id, user_id="bob")
    run_projection()

    wait(browser, lambda b: state(b) == "CANCELED", "CANCELED, told by the event stream")
    assert "You cancelled it." in browser.find_element(By.CSS_SELECTOR, "[data-text]").text
    assert browser.find_element(By.CSS_SELECTOR, "[data-buy]").is_enabled()


def log_in(browser: Chrome, web_server: str, sale: Sale, user: str) -> None:
    browser.get(f"{web_server}/login/?next=/activities/{sale.activity_id}/")
    browser.find_element(By.NAME, "user_id").send_keys(user)
    browser.find_element(By.CSS_SELECTOR, "main button").click()
    wait(browser, lambda b: b.find_element(By.ID, "clock").text, "the page of the sale")


def sale_reservations(sale: Sale, reservation_id: str) -> list[Any]:
    from inventory import verbs
    from inventory.gate import gate

    return gate().run(
        verbs.reservations(activity_id=sale.activity_id, reservation_ids=[reservation_id])
    )
