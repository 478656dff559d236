"""From a dead message to a closed ticket in headless Chromium, with the real loops and broker."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from dlq_admin.capture.drain import drain_own
from dlq_admin.models.message import DlqMessage
from dlq_admin.replay.worker import replay_loops
from messaging.attempt import Handler
from messaging.broker import broker
from messaging.consumer import run_loop
from messaging.pulse import Pulse
from messaging.sender import sender_loops
from messaging.topology import CG_ORDER_CREATE, group_spec
from messaging.worker import Loop, StopSignal, serve
from orders.handlers import ORDER_CREATE_HANDLER
from orders.scan.resend import Resender
from seckill.demo.mistaken import Mistaken
from tests.fixtures.desk import PASSWORD, client_of, person
from tests.fixtures.sales import Sale
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
WAIT_S = 60
_MEMBERS = 'SELECT count(*) FROM messaging_heartbeat WHERE build = 2 AND "group" = %s'


@pytest.fixture
def provisioned(own_topics: str) -> str:
    """Topics of this test alone: what another one left would open tickets, and trip the breaker."""
    return own_topics


@contextmanager
def working(role: str, *loops: Loop, stop: StopSignal | None = None) -> Iterator[None]:
    """Run loops in the real worker shell (heartbeats included) in a thread of this process."""
    signal = stop or StopSignal()
    thread = threading.Thread(target=serve, kwargs={"role": role, "loops": loops, "stop": signal})
    thread.start()
    try:
        yield
    finally:
        signal.set()
        thread.join(20)
        assert not thread.is_alive()


def consumer(handler: Handler) -> Loop:
    spec = group_spec(CG_ORDER_CREATE)

    def run(stop: StopSignal, pulse: Pulse) -> None:
        receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
        run_loop(spec, handler, receiver, stop, pulse=pulse)

    return Loop(name="order-create", group=spec.name, run=run)


class Desk:
    """One browser, in which people take turns."""

    def __init__(self, browser: Chrome, base: str) -> None:
        self.browser = browser
        self.base = base

    def sit(self, user: User) -> None:
        """Let somebody else log in."""
        self.browser.get(f"{self.base}/healthz")
        self.browser.delete_all_cookies()
        session = client_of(user).cookies["sessionid"].value
        self.browser.add_cookie({"name": "sessionid", "value": session})

    def go(self, path: str) -> None:
        self.browser.get(f"{self.base}/admin/dlq/{path}")

    def wait(self, check: Callable[[Chrome], Any], what: str) -> Any:
        return WebDriverWait(self.browser, WAIT_S, poll_frequency=0.1).until(check, what)

    def text(self, css: str) -> str:
        return self.browser.find_element(By.CSS_SELECTOR, css).text

    def see(self, css: str, what: str) -> Any:
        return self.wait(lambda b: b.find_elements(By.CSS_SELECTOR, css), what)[0]

    def see_ticket(self, title: str) -> Any:
        """Find a ticket by its title: both of the sale's dead messages have one."""
        return self.wait(
            lambda b: [
                link for link in b.find_elements(By.CSS_SELECTOR, "a.main") if title in link.text
            ],
            title,
        )[0]

    def act(self, name: str, **fields: str) -> None:
        """Open an act, fill it in, send it, and wait for the page that answers."""
        act = self.see(f"#act-{name}", name)
        if not act.get_attribute("open"):
            act.find_element(By.TAG_NAME, "summary").click()
        for field, value in fields.items():
            box = act.find_element(By.NAME, field)
            if box.tag_name == "select":
                Select(box).select_by_value(value)
            else:
                box.clear()
                box.send_keys(value)
        self.press(act.find_element(By.CSS_SELECTOR, "button[type=submit]"))

    def press(self, button: Any) -> None:
        page = self.browser.find_element(By.TAG_NAME, "html")
        button.click()
        self.wait(lambda b: b.find_element(By.TAG_NAME, "html") != page, "an answer")

    def shoot(self, name: str) -> None:
        """Keep a picture on a desk and on a telephone, when somebody wants them."""
        folder = os.environ.get("SECKILL_SCREENSHOTS")
        widths = ((1400, ""), (390, "-phone")) if folder else ((390, "-phone"), (1400, ""))
        for width, suffix in widths:
            self.browser.set_window_size(width, 900)
            wide = self.browser.execute_script(
                "return document.querySelector('.dlq').getBoundingClientRect().right"
                " - window.innerWidth"
            )
            assert wide <= 0, f"{name} scrolls sideways at {width}"
            if folder:
                height = self.browser.execute_script("return document.body.scrollHeight")
                self.browser.set_window_size(width, min(max(height + 40, 600), 2600))
                self.browser.save_screenshot(str(Path(folder) / f"dlq-{name}{suffix}.png"))
        self.browser.set_window_size(1400, 900)


def test_a_message_dies_and_two_people_bring_its_buyer_home(
    browser: Chrome, web_server: str, sale: Sale, settings: Any
) -> None:
    desk = Desk(browser, web_server)
    browser.set_window_size(1400, 900)
    olga, anton = person("operator", "olga"), person("approver", "anton")
    olga.groups.add(*anton.groups.all())  # even so she may not approve her own plan
    reservation = sale.reserve("ana@example.com")
    broken = sale.reserve("cut-off")

    # The message dies in build 1, and the desk has its ticket.
    settings.SECKILL_BUILD = 1
    with working("consumer", consumer(Mistaken()), Loop(name="own", run=drain_own)):
        resender = Resender()
        assert [r.outcome.name for _, r in resender.send([reservation])] == ["CONFIRMED"]
        resender.close()
        desk.sit(olga)
        desk.go("")
        desk.see_ticket("buyer id unreadable")
    dead = DlqMessage.objects.get(reservation_id=reservation.reservation_id)
    ticket = dead.ticket
    assert ticket is not None
    desk.shoot("inbox")

    # Evidence, domain state, classification.
    desk.go("")
    desk.press(desk.see_ticket("buyer id unreadable"))
    assert "***" in desk.text("#payload")
    assert "ana@example.com" not in browser.page_source
    desk.shoot("ticket")
    desk.act("take")
    desk.act("classify", cause="HANDLER_BUG", disposition="REPLAY", analysis="build 1 misreads @")
    desk.act("fix")
    desk.go(f"tickets/{ticket.pk}/?tab=domain")
    assert "its unit is held" in desk.text(".dlq")
    desk.shoot("domain")

    # The fix is not there yet: no consumer reports its build.
    desk.act("ready", fix_reference="commit 4f2a", fix_build="2")
    assert "no live member" in desk.text("#act-ready .errorlist")
    assert desk.see("#act-ready [name=fix_reference]", "what was typed").get_attribute("value")

    # A new build is a new process with a heartbeat row of its own.
    execute("DELETE FROM messaging_heartbeat")
    settings.SECKILL_BUILD = 2
    stop = StopSignal()
    with (
        working("consumer", consumer(ORDER_CREATE_HANDLER)),
        working("sender", *sender_loops(broker(), stop), stop=stop),
        working("replay", *replay_loops()),
    ):
        desk.wait(
            lambda _: one(_MEMBERS, CG_ORDER_CREATE) > 0,
            "a heartbeat of build 2",
        )
        desk.act("ready", fix_reference="commit 4f2a", fix_build="2")
        assert desk.see("#ticket-status", "status").get_attribute("data-status") == "READY"

        desk.go(f"tickets/{ticket.pk}/?tab=plan")
        desk.press(desk.see("#dry-run", "dry run"))
        assert "will create" in desk.text("#verdict")
        desk.shoot("dry-run")
        desk.act("plan", reason="build 2 reads it")
        assert sale.order_status(reservation) == "NONE"
        desk.act("request")
        approve = desk.see("#act-approve", "the act, with the reason why not")
        assert "another person must approve" in (approve.get_attribute("textContent") or "")
        assert not approve.find_element(By.TAG_NAME, "button").is_enabled()
        assert not browser.find_elements(By.CSS_SELECTOR, "#act-approve [name=password]")

        desk.sit(anton)
        desk.go("approvals/")
        desk.shoot("approvals")
        desk.press(desk.see("a.main", "the plan"))
        desk.shoot("approve")
        desk.act("approve", password=PASSWORD, comment="seen the dry run")
        desk.wait(
            lambda b: b.find_elements(By.CSS_SELECTOR, "[data-status^=COMPLETED]"),
            "the batch to complete, told by the live part",
        )
        assert "verified" in desk.text("tbody")
        desk.shoot("batch")
        assert sale.order_status(reservation) == "CREATED"

        desk.sit(olga)
        desk.go(f"tickets/{ticket.pk}/?tab=invariants")
        desk.press(desk.see("#check", "check now"))
        assert "pass" in desk.text("tbody")
        desk.shoot("invariants")
        desk.act("close")
        assert desk.see("#ticket-status", "status").get_attribute("data-status") == "CLOSED"
        desk.go(f"tickets/{ticket.pk}/?tab=timeline")
        desk.shoot("timeline")
    assert sale.gate_status(broken) == "RESERVED"

    # The record is whole; then somebody with all rights changes one byte.
    desk.sit(person("auditor", "aude"))
    desk.go("audit/")
    desk.press(desk.see("#verify", "verify"))
    assert "As it was written." in desk.text("#proof")
    desk.shoot("audit")
    execute("ALTER TABLE dlq_admin_audit_event DISABLE TRIGGER USER")
    changed = execute(
        "UPDATE dlq_admin_audit_event SET actor = 'olgb' WHERE kind = 'TICKET_CLASSIFIED'"
    )
    execute("ALTER TABLE dlq_admin_audit_event ENABLE TRIGGER USER")
    assert changed == 1
    desk.press(desk.see("#verify", "verify"))
    assert "Not as it was written." in desk.text("#proof")
    assert "was changed" in desk.text("#proof")
    desk.shoot("tampered")
    severe = [log["message"] for log in browser.get_log("browser") if log["level"] == "SEVERE"]
    # Refusals are answers; nothing of the content policy may be among them.
    expected = ("409", "422", "favicon.ico")
    assert [message for message in severe if not any(known in message for known in expected)] == []
