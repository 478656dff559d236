"""From a dead message to a closed ticket in headless Chromium, with the real loops and broker."""

from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from dlq_admin.capture.drain import drain_own
from dlq_admin.models.message import DlqMessage
from dlq_admin.replay.worker import replay_loops
from messaging.broker import broker
from messaging.sender import sender_loops
from messaging.topology import CG_ORDER_CREATE
from messaging.worker import Loop, StopSignal
from orders.handlers import ORDER_CREATE_HANDLER
from orders.scan.resend import Resender
from seckill.demo.mistaken import Mistaken
from tests.fixtures.console import Desk
from tests.fixtures.desk import PASSWORD, person
from tests.fixtures.loops import order_consumer, working
from tests.fixtures.sales import Sale
from tests.fixtures.sql import execute, one

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
_MEMBERS = 'SELECT count(*) FROM messaging_heartbeat WHERE build = 2 AND "group" = %s'


@pytest.fixture
def provisioned(own_topics: str) -> str:
    """Topics of this test alone: what another one left would open tickets, and trip the breaker."""
    return own_topics


def test_a_message_dies_and_two_people_bring_its_buyer_home(
    browser: Chrome, sale: Sale, web_server: str, settings: Any
) -> None:
    desk = Desk(browser, web_server)
    browser.set_window_size(1400, 900)
    olga, anton = person("operator", "olga"), person("approver", "anton")
    olga.groups.add(*anton.groups.all())  # even so she may not approve her own plan
    reservation = sale.reserve("ana@example.com")
    broken = sale.reserve("cut-off")

    # The message dies in build 1, and the desk has its ticket.
    settings.SECKILL_BUILD = 1
    with working("consumer", order_consumer(Mistaken()), Loop(name="own", run=drain_own)):
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
        working("consumer", order_consumer(ORDER_CREATE_HANDLER)),
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
        assert "Will create (stock): a replay makes the order" in desk.text("#verdict")
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
        desk.see("details.act #act-abort", "the acts to follow: nothing is left to kill")
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
