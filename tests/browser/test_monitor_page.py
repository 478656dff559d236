"""The live sale monitor in headless Chromium, against a real web process and a real sampler."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.contrib.auth.models import User
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from inventory.gate import gate
from inventory.watch import count_answers
from messaging.pulse import Pulse
from messaging.topology import CG_ORDER_CREATE
from seckill.monitor import loop, store
from tests.fixtures.paid import pay_now
from tests.fixtures.sales import Sale, open_sale
from tests.fixtures.sql import execute

pytestmark = pytest.mark.browser

DESK, PHONE = (1920, 1080), (390, 844)


class Sampling:
    """The sampler's own loop, in a thread of this process."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=loop.run, args=(self._stop, Pulse()))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(10)


@pytest.fixture
def sampling(transactional_db: None, redis_client: object) -> Iterator[Sampling]:
    made = Sampling()
    yield made
    made.end()


def wait(browser: Chrome, selector: str, text: str) -> None:
    # What is looked at may be replaced meanwhile: that is a look too early, not a failure.
    WebDriverWait(
        browser, 20, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
    ).until(
        lambda b: any(text in e.text for e in b.find_elements(By.CSS_SELECTOR, selector)),
        f"{text!r} in {selector}",
    )


def log_in(browser: Chrome, base: str, path: str) -> None:
    User.objects.create_superuser("root", password="a-long-password")
    browser.get(base + path)
    browser.find_element(By.NAME, "username").send_keys("root")
    browser.find_element(By.NAME, "password").send_keys("a-long-password")
    browser.find_element(By.CSS_SELECTOR, "[type=submit]").click()


def resize(browser: Chrome, size: tuple[int, int]) -> None:
    """Set the size of what the page sees; a window has a smallest width."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600},
    )


def theme(browser: Chrome, name: str) -> None:
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", name)


def shoot(browser: Chrome, name: str) -> None:
    folder = os.environ.get("SECKILL_SCREENSHOTS")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


def complaints(browser: Chrome) -> list[str]:
    """What the browser has to say: errors of scripts, and all that the policy refused."""
    return [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] == "SEVERE" and "favicon.ico" not in entry["message"]
    ]


def is_too_wide(browser: Chrome) -> bool:
    return bool(
        browser.execute_script(
            "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
    )


def sell(sale: Sale, *users: str) -> None:
    sale.deliver(*sale.reserve_all(list(users)))
    gate().run(
        count_answers(
            activity_id=sale.activity_id, counts={"QUEUED": len(users), "SOLD_OUT": 7 * len(users)}
        )
    )


def test_a_sale_is_watched_live_on_a_wall_a_desk_and_a_phone(
    browser: Chrome, web_server: str, sampling: Sampling
) -> None:
    sale = open_sale(units=40)
    sell(sale, *[f"a{n}" for n in range(6)])
    resize(browser, DESK)
    log_in(browser, web_server, "/admin/")
    browser.find_element(By.LINK_TEXT, "Live sale monitor\nThe running sale at a glance").click()

    wait(browser, "#live", "live")
    wait(browser, "[data-key=ordered] .value", "6")
    wait(browser, "[data-key=requests] .value", "48")
    wait(browser, "[data-key=requests] .under", "42 sold out")
    assert browser.find_element(By.ID, "sale-gate").text == "open"
    assert "✓ 0" in browser.find_element(By.CSS_SELECTOR, "[data-key=oversold] .value").text
    assert "every unit is explained" in browser.find_element(By.ID, "conservation-verdict").text
    numbers = [
        cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#conservation tbody td")
    ]
    assert numbers == ["40", "0", "0", "40", "34", "6", "0", "0", "34"]

    # The page is not loaded again: what happens now arrives by itself.
    browser.execute_script("window.sameDocument = true")
    more = sale.reserve_all(["b1", "b2"])
    sale.deliver(*more)
    pay_now(order_id=more[0].order_id, payment_id="pay_1")
    wait(browser, "[data-key=ordered] .value", "8")
    wait(browser, "[data-key=paid] .value", "1")
    wait(browser, ".ends [data-key=unpaid] dd", "7")
    assert browser.execute_script("return window.sameDocument") is True
    assert browser.find_elements(By.CSS_SELECTOR, "#late path.line"), "no line is drawn"
    assert browser.find_elements(By.CSS_SELECTOR, "#units path.area"), "no area is drawn"
    assert not is_too_wide(browser)
    for name in ("light", "dark"):
        theme(browser, name)
        shoot(browser, f"monitor-desk-{name}")

    resize(browser, PHONE)
    wait(browser, "#live", "live")
    assert not is_too_wide(browser)
    shoot(browser, "monitor-phone")

    resize(browser, DESK)
    browser.get(f"{web_server}/admin/monitor/?wall")
    wait(browser, "[data-key=ordered] .value", "8")
    assert not browser.find_element(By.ID, "header").is_displayed()
    # A wall cannot scroll: everything that matters stands on one screen.
    bottom = browser.execute_script(
        "return document.querySelector('.mon-lower').getBoundingClientRect().bottom"
    )
    assert bottom <= DESK[1]
    shoot(browser, "monitor-wall")
    assert complaints(browser) == []


def test_silence_is_shown_and_ends_by_itself(
    browser: Chrome, web_server: str, sampling: Sampling, redis_client: redis.Redis
) -> None:
    sale = open_sale()
    resize(browser, DESK)
    log_in(browser, web_server, "/admin/monitor/")
    wait(browser, "#live", "live")

    sampling.end()
    redis_client.delete(store.SNAPSHOT)
    wait(browser, "#notes", "Nobody looks at the sale")
    wait(browser, "#live", "no data")
    assert "stale" in (browser.find_element(By.ID, "monitor").get_attribute("class") or "")
    shoot(browser, "monitor-silent")

    sell(sale, "ann")
    again = Sampling()
    try:
        wait(browser, "[data-key=ordered] .value", "1")
        assert browser.find_elements(By.CSS_SELECTOR, "#notes > *") == []
    finally:
        again.end()


def test_a_monitor_opened_in_an_outage_has_its_limits_afterwards(
    browser: Chrome, web_server: str, sampling: Sampling
) -> None:
    # given a page whose first questions find Redis away; the stream outlives that
    open_sale()
    resize(browser, DESK)
    source = """
    window.outage = true; window.together = 0; window.most = 0;
    const real = fetch;
    window.fetch = async (...asked) => {
      together += 1; most = Math.max(most, together);
      await new Promise((resolve) => setTimeout(resolve, 1500));
      together -= 1;
      return outage ? new Response('{"problem":"GateUnavailable"}', { status: 503 })
        : real(...asked);
    };
    """
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    log_in(browser, web_server, "/admin/monitor/")
    wait(browser, "#live", "live")
    wait(browser, "[data-key=pending] .under", "pending")
    pending = browser.find_element(By.CSS_SELECTOR, "[data-key=pending]")
    assert pending.get_attribute("data-tone") == "quiet"

    browser.execute_script("window.outage = false")

    WebDriverWait(browser, 20, poll_frequency=0.05).until(
        lambda _: pending.get_attribute("data-tone") == "good", "a tile with its colour"
    )
    assert browser.execute_script("return most") == 1
    wait(browser, "#live", "live")
    assert browser.find_elements(By.CSS_SELECTOR, "#notes .bad") == []


def test_workers_are_shown_and_read_again(browser: Chrome, web_server: str) -> None:
    log_in(browser, web_server, "/admin/monitor/workers/")
    wait(browser, "#workers", "No worker has beaten")
    beat("sender", "lane0")
    beat("consumer", "orders", group=CG_ORDER_CREATE)
    wait(browser, "#workers", "sender")
    for size, name in ((DESK, "desk"), (PHONE, "phone")):
        resize(browser, size)
        assert not is_too_wide(browser)
        shoot(browser, f"workers-{name}")
    assert complaints(browser) == []


def beat(role: str, name: str, *, group: str = "") -> None:
    execute(
        'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
        " beat_at, state, detail) VALUES (%s, %s, %s, 3, '', now(), now(), 'RUNNING',"
        ' \'{"lag_s": 0.41, "drain_per_s": 812.5, "receiving": true}\')',
        f"box-1:4711:{role}/{name}",
        role,
        group,
    )
