"""An operator's whole path through the admin: create, warm up, open, top up, close."""

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from inventory import verbs
from inventory.gate import gate
from tests.browser.test_monitor_page import (
    DESK,
    PHONE,
    complaints,
    is_too_wide,
    log_in,
    resize,
    shoot,
    wait,
)
from tests.fixtures.sql import one, rows

pytestmark = pytest.mark.browser


def field(browser: Chrome, name: str) -> WebElement:
    return browser.find_element(By.NAME, name)


def fill(browser: Chrome, **values: str) -> None:
    for name, value in values.items():
        found = field(browser, name)
        found.clear()
        found.send_keys(value)


def operate(browser: Chrome, label: str, **values: str) -> None:
    """Go from the sale's page through the confirmation and back."""
    browser.find_element(By.LINK_TEXT, label).click()
    what = label.rstrip("…").lower().replace(" ", "-")
    for size, name in ((PHONE, "phone"), (DESK, "desk")):
        resize(browser, size)
        assert not is_too_wide(browser), f"{label} scrolls sideways on a {name}"
        shoot(browser, f"operate-{what}-{name}")
    fill(browser, reason=f"{what} for the test", **values)
    browser.find_element(By.CSS_SELECTOR, ".submit-row [type=submit]").click()
    wait(browser, ".messagelist", "DONE")


def gate_of(activity_id: int, sku_id: int) -> tuple[str, int]:
    state = gate().run(verbs.gate_state(activity_id=activity_id, sku_id=sku_id))
    assert state is not None
    return state.status, state.stock


def test_a_sale_is_created_warmed_up_opened_topped_up_and_closed(
    browser: Chrome, web_server: str
) -> None:
    resize(browser, DESK)
    log_in(browser, web_server, "/admin/inventory/activity/add/")
    fill(
        browser,
        name="Evening sale",
        starts_at_0="2020-01-01",
        starts_at_1="08:00",
        ends_at_0="2099-01-01",
        ends_at_1="22:00",
    )
    fill(
        browser,
        **{
            "skus-0-name": "Lamp",
            "skus-0-price_cents": "4900",
            "skus-0-initial_units": "50",
        },
    )
    shoot(browser, "activity-add")
    field(browser, "_continue").click()
    wait(browser, ".messagelist", "was added successfully")
    activity_id = int(one("SELECT id FROM inventory_activity"))
    sku_id = int(one("SELECT id FROM inventory_sku"))

    operate(browser, "Warm up…")
    assert gate_of(activity_id, sku_id) == ("CLOSED", 50)
    shoot(browser, "activity-warm")
    operate(browser, "Open…")
    assert gate_of(activity_id, sku_id) == ("OPEN", 50)
    operate(browser, "Top up…", units="25")
    assert gate_of(activity_id, sku_id) == ("OPEN", 75)
    shoot(browser, "activity-open")
    operate(browser, "Close…")
    assert gate_of(activity_id, sku_id) == ("CLOSED", 75)
    shoot(browser, "activity-closed")

    assert rows(
        "SELECT kind, status, reason FROM inventory_gateoperation ORDER BY requested_at"
    ) == [
        ("WARM_UP", "DONE", "warm-up for the test"),
        ("OPEN", "DONE", "open for the test"),
        ("TOP_UP", "DONE", "top-up for the test"),
        ("CLOSE", "DONE", "close for the test"),
    ]
    assert complaints(browser) == []


def test_what_the_status_forbids_is_not_offered(browser: Chrome, web_server: str) -> None:
    from tests.fixtures.sales import open_sale

    sale = open_sale()
    resize(browser, DESK)
    log_in(browser, web_server, f"/admin/inventory/activity/{sale.activity_id}/change/")
    offered = [link.text for link in browser.find_elements(By.CSS_SELECTOR, ".operations a")]
    assert offered == ["Pause…", "Close…", "Top up…", "Cut…", "Edit…", "Stop…"]


def test_an_unpaid_order_is_cancelled_from_its_story(browser: Chrome, web_server: str) -> None:
    from tests.fixtures.sales import open_sale

    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    resize(browser, DESK)
    log_in(browser, web_server, f"/admin/orders/order/story/{reservation.order_id}/")
    wait(browser, ".story-acts", "Cancel…")
    browser.find_element(By.LINK_TEXT, "Cancel…").click()
    for size, name in ((PHONE, "phone"), (DESK, "desk")):
        resize(browser, size)
        shoot(browser, f"cancel-order-{name}")
        assert not is_too_wide(browser), f"the confirmation scrolls sideways on a {name}"
    fill(browser, reason="asked by telephone")
    browser.find_element(By.CSS_SELECTOR, "[name=units][value=withhold]").click()
    browser.find_element(By.CSS_SELECTOR, ".submit-row [type=submit]").click()
    wait(browser, ".messagelist", "is cancelled")
    shoot(browser, "order-cancelled")

    assert sale.order_status(reservation) == "CANCELED"
    assert one("SELECT withheld FROM inventory_stock") == 1
    assert complaints(browser) == []
