"""The activity page when something goes wrong: no network, an old token, a sale that changes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from inventory.models import Activity
from tests.fixtures.sales import Sale, run_projection

pytestmark = pytest.mark.browser

# Time passes fifty times as quickly for what the page waits for.
QUICK = "const later = setTimeout; window.setTimeout = (f, ms, ...a) => later(f, ms / 50, ...a);"
# What would happen by itself after a quarter of a second or more never does.
FROZEN = "const later = setTimeout; window.setTimeout = (f, ms) => ms < 250 ? later(f, ms) : 0;"
# Counts the requests for an address; `answers` may name another answer for an address.
SPY = """
window.asked = {}; window.answers = {};
const real = fetch;
window.fetch = (url, options) => {
  const name = String(url).split("/").at(-1);
  asked[name] = (asked[name] || 0) + 1;
  const made = answers[name];
  return made ? Promise.resolve(new Response(made.body, { status: made.status }))
    : real(url, options);
};
"""


def test_a_buyer_without_network_is_told_and_followed_again_however_long_it_took(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    # given a buyer who waits for the order
    reservation = sale.reserve("alice")
    prepare(browser, QUICK, SPY)
    log_in(browser, web_server, sale, "alice")
    wait_state(browser, "QUEUED")
    assert not lost(browser)
    assert not box(browser, "pay").is_displayed()

    # when the network is away for more than any count of tries
    with offline(browser):
        wait(browser, lambda b: lost(b), "the word that the connection is lost")
        before = asked(browser, "events")
        wait(browser, lambda b: asked(b, "events") > before + 25, "tries without end")
        shoot(browser, "lost")
        sale.deliver(reservation)
        run_projection()
        assert lost(browser)

    # then the page comes back by itself
    wait_state(browser, "ORDERED")
    assert not lost(browser)


@pytest.mark.parametrize("what", ["online", "visibilitychange"])
def test_a_page_tries_again_at_once_when_the_network_or_its_reader_is_back(
    browser: Chrome, sale: Sale, web_server: str, what: str
) -> None:
    sale.reserve("alice")
    prepare(browser, FROZEN, SPY)
    log_in(browser, web_server, sale, "alice")
    wait_state(browser, "QUEUED")
    with offline(browser):
        wait(browser, lambda b: lost(b), "the word that the connection is lost")
        if what == "visibilitychange":
            # Only the reader is to wake it up.
            browser.execute_script(
                "addEventListener('online', (e) => e.stopImmediatePropagation(), true)"
            )
        before = asked(browser, "events")
    if what == "visibilitychange":
        browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
    wait(browser, lambda b: not lost(b), "the connection again")
    assert asked(browser, "events") > before


def test_a_stream_that_fell_silent_is_taken_for_dead(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    sale.reserve("alice")
    prepare(browser, SPY)
    log_in(browser, web_server, sale, "alice")
    wait_state(browser, "QUEUED")
    # The clock jumps, as after a night with the lid closed: nothing has been heard for long.
    browser.execute_script(
        "const real = Date.now; let n = 0; Date.now = () => real() + (n += 20_000)"
    )
    wait(browser, lambda b: asked(b, "events") > 1, "another stream")


@pytest.mark.parametrize("how", ["no network", "502"])
def test_a_payment_without_an_answer_may_be_sent_again(
    browser: Chrome, sale: Sale, web_server: str, how: str
) -> None:
    reservation = sale.reserve("alice")
    sale.deliver(reservation)
    run_projection()
    prepare(browser, SPY)
    log_in(browser, web_server, sale, "alice")
    wait_state(browser, "ORDERED")

    if how == "502":
        html = {"status": 502, "body": "<html>Bad gateway</html>"}
        browser.execute_script("answers.payments = arguments[0]", html)
        pay(browser)
        wait_text(browser, "No answer. Try again.")
        browser.execute_script("delete answers.payments")
    else:
        with offline(browser):
            pay(browser)
            wait_text(browser, "No answer. Try again.")
    shoot(browser, "no-answer")
    pay(browser)

    wait(browser, lambda _: sale.order_status(reservation) == "PAID", "a paid order")


def test_a_page_with_an_old_token_is_loaded_again_and_can_buy(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    log_in(browser, web_server, sale, "alice")
    browser.execute_script("window.old = true; headers.Authorization = 'Bearer old'")
    browser.find_element(By.CSS_SELECTOR, "[data-buy]").click()

    wait(browser, lambda b: not b.execute_script("return window.old"), "a new page")
    wait(browser, lambda b: b.find_element(By.ID, "clock").text, "the page of the sale")
    browser.find_element(By.CSS_SELECTOR, "[data-buy]").click()
    wait(browser, lambda _: list(sale.holders()) == ["alice"], "a reservation")


def test_a_server_that_takes_no_token_has_the_page_loaded_again_only_once(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    # `reservation` is asked for by every page, `reservations` by the button
    refusing = """
    sessionStorage.loads = Number(sessionStorage.loads || 0) + 1;
    answers.reservation = answers.reservations = { status: 401, body: "{}" };
    """
    prepare(browser, SPY, f"if (location.pathname.startsWith('/activities')) {{ {refusing} }}")
    log_in(browser, web_server, sale, "alice")
    wait(browser, lambda b: b.execute_script("return sessionStorage.loads") == "2", "a new page")
    wait(browser, lambda b: asked(b, "reservation") == 1, "the question for a reservation")

    browser.find_element(By.CSS_SELECTOR, "[data-buy]").click()
    wait_text(browser, "Your log-in has ended. Load this page again.")
    assert browser.execute_script("return sessionStorage.loads") == "2"


def test_a_token_that_will_run_out_is_replaced_before_it_does(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    prepare(browser, QUICK)
    log_in(browser, web_server, sale, "alice")
    browser.execute_script(
        "window.old = true; sale.dataset.token = '.' + btoa(JSON.stringify({ exp: now() / 1000 }))"
    )
    wait(browser, lambda b: not b.execute_script("return window.old"), "a new page")


def test_an_open_page_shows_that_the_sale_is_paused_and_the_stock_is_gone(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    prepare(browser, QUICK)
    log_in(browser, web_server, sale, "alice")
    badge = browser.find_element(By.CSS_SELECTOR, "[data-stock]")
    assert badge.text == "in stock"

    sale.reserve_all([f"u{n}" for n in range(9)])
    wait(browser, lambda _: badge.text == "few left", "few left")
    sale.reserve("last")
    wait(browser, lambda _: badge.text == "sold out", "sold out")
    assert badge.get_attribute("class") == "badge stock none"
    assert browser.find_element(By.CSS_SELECTOR, "[data-buy]").is_enabled()

    Activity.objects.filter(pk=sale.activity_id).update(status="PAUSED")
    clock = browser.find_element(By.ID, "clock")
    wait(browser, lambda _: clock.text == "The sale is paused.", "the pause")
    assert not browser.find_element(By.CSS_SELECTOR, "[data-buy]").is_enabled()
    shoot(browser, "paused")


def test_a_page_looks_shortly_before_the_start_but_not_while_it_is_hidden(
    browser: Chrome, sale: Sale, web_server: str
) -> None:
    # given a sale that starts in 100 s; a page looks 75 s before, the next look is in 120 s
    starts = timezone.now() + timedelta(seconds=100)
    Activity.objects.filter(pk=sale.activity_id).update(starts_at=starts)
    hide = "Object.defineProperty(document, 'hidden', { get: () => window.away });"
    until_100_s = "window.setTimeout = (f, ms) => ms < 100_000 ? later(f, ms / 50) : 0;"
    prepare(browser, "Math.random = () => 0.5;", "const later = setTimeout;", until_100_s, SPY)
    log_in(browser, web_server, sale, "alice")
    name = str(sale.activity_id)

    wait(browser, lambda b: asked(b, name) == 1, "a look before the start")

    # hidden, it does not look; shown again after a while, it does at once
    browser.execute_script(f"window.away = true; {hide} look()")
    assert asked(browser, name) == 1
    browser.execute_script("lookedAt -= 60_000; window.away = false")
    browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
    wait(browser, lambda b: asked(b, name) == 2, "a look when it is shown")
    browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
    assert asked(browser, name) == 2


# -- helpers ----------------------------------------------------------------------------------
def prepare(browser: Chrome, *scripts: str) -> None:
    """Run scripts in every document before its own."""
    source = "\n".join(scripts)
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})


@contextmanager
def offline(browser: Chrome) -> Iterator[None]:
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **conditions})
    yield
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **conditions})


def log_in(browser: Chrome, web_server: str, sale: Sale, user: str) -> None:
    browser.get(f"{web_server}/login/?next=/activities/{sale.activity_id}/")
    browser.find_element(By.NAME, "user_id").send_keys(user)
    browser.find_element(By.CSS_SELECTOR, "main button").click()
    wait(browser, lambda b: b.find_element(By.ID, "clock").text, "the page of the sale")


def wait(browser: Chrome, check: Any, what: str) -> None:
    # A page may be loaded again meanwhile: that is a look too early, not a failure.
    patient = WebDriverWait(
        browser, 20, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
    )
    patient.until(check, what)


def wait_state(browser: Chrome, name: str) -> None:
    wait(browser, lambda b: box(b, "status-box").get_attribute("data-state") == name, name)


def wait_text(browser: Chrome, text: str) -> None:
    wait(browser, lambda b: box(b, "text").text == text, text)


def box(browser: Chrome, name: str) -> Any:
    return browser.find_element(By.CSS_SELECTOR, f"[data-{name}]")


def lost(browser: Chrome) -> bool:
    found = box(browser, "lost")
    return bool(found.is_displayed() and found.text == "Connection lost, trying again…")


def asked(browser: Chrome, name: str) -> int:
    return int(browser.execute_script("return window.asked?.[arguments[0]] ?? 0", name))


def pay(browser: Chrome) -> None:
    wait(browser, lambda b: box(b, "pay").is_displayed(), "a button to pay")
    box(browser, "pay").click()


def shoot(browser: Chrome, name: str) -> None:
    folder = os.environ.get("SECKILL_SCREENSHOTS")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))
