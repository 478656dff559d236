"""Broken glass in headless Chromium: started by one, and approved by another afterwards."""

from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from dlq_admin import replay
from dlq_admin.models import BreakGlass, FailureGroup, ReplayBatch, Ticket
from messaging.topology import CG_ORDER_CREATE
from tests.fixtures.console import Desk as Console
from tests.fixtures.desk import PASSWORD, person
from tests.fixtures.dlq import Desk, ready_ticket
from tests.fixtures.sales import Sale

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_a_lead_starts_a_plan_and_it_is_owed_an_approval(
    browser: Chrome, sale: Sale, web_server: str, settings: Any
) -> None:
    olga, anton, lea = (person("operator", "olga"), person("approver", "anton"),
                        person("incident lead", "lea"))  # fmt: skip
    group = FailureGroup.objects.create(
        consumer_group=CG_ORDER_CREATE, error_class="BUG", fingerprint="f" * 32
    )
    ticket = ready_ticket(group, assignee=olga)
    Ticket.objects.update(message_count=1)
    people = Desk(operator=olga, approver=anton, lead=lea, ticket=ticket)
    planned = people.plan(people.dead(sale, sale.reserve("ann")))
    replay.request_approval(batch_id=planned.batch_id, user=olga)
    console = Console(browser, web_server)
    browser.set_window_size(1400, 900)

    console.sit(anton)
    console.go(f"batches/{planned.batch_id}/")
    act = console.see("#act-break-glass", "the act, with the reason why not")
    assert "needs break_glass: incident lead" in (act.get_attribute("textContent") or "")

    console.sit(lea)
    console.go(f"batches/{planned.batch_id}/")
    console.see("#act-break-glass summary", "the act").click()
    console.shoot("glass-act")
    console.act("break-glass", reason="the sale ends in a minute", password="wrong")
    assert "the password is wrong" in console.text("#act-break-glass .errorlist")
    console.act("break-glass", reason="the sale ends in a minute", password=PASSWORD)
    assert "lea broke the glass" in console.text("#glass")
    assert ReplayBatch.objects.get().status == "APPROVED"
    why = console.see("#act-approve", "approve").get_attribute("textContent") or ""
    assert "you broke the glass: another person must approve" in why
    console.shoot("glass-broken")
    console.go(f"tickets/{ticket.pk}/")
    assert "Somebody else must approve it within 59 min" in console.text("#glass")
    console.shoot("glass-ticket")

    console.sit(anton)
    console.go("approvals/")
    assert "glass broken" in console.text("tbody")
    console.shoot("glass-queue")
    console.press(console.see("a.main", "the plan"))
    console.act("approve", password=PASSWORD, comment="right so")
    assert "Approved at" in console.text("#glass")
    assert BreakGlass.objects.get().approved_at is not None
    console.go(f"tickets/{ticket.pk}/")
    assert not browser.find_elements(By.CSS_SELECTOR, "#glass")
