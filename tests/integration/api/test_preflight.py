"""Preflight: a red line for what is missing, exit 1, and the same table for staff only."""

from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from messaging.topology import enabled_groups
from seckill import preflight
from tests.fixtures.sales import open_sale
from tests.fixtures.sql import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def red(activity_id: int) -> set[str]:
    return {check.name for check in preflight.run(activity_id) if not check.ok}


def beat(role: str, group: str = "") -> None:
    now = timezone.now()
    execute(
        'INSERT INTO messaging_heartbeat (worker_id, role, "group", build, version, started_at,'
        " beat_at, state, detail) VALUES (%s, %s, %s, 1, '', %s, %s, 'RUNNING', '{}')",
        f"test:{role}:{group}",
        role,
        group,
        now,
        now,
    )


def test_everything_there_is_green_and_each_missing_thing_is_red(provisioned: str) -> None:
    sale = open_sale()
    workers = {f"group {group.name}" for group in enabled_groups()} | {"sender", "scanner"}
    assert red(sale.activity_id) == workers

    for group in enabled_groups():
        beat("consumer", group.name)
    beat("sender")
    beat("scanner")
    assert red(sale.activity_id) == set()
    call_command("preflight", sale.activity_id, stdout=StringIO())

    execute("UPDATE messaging_heartbeat SET beat_at = beat_at - interval '1 hour'")
    assert red(sale.activity_id) == workers


def test_a_finished_window_and_a_lost_gate_are_red(provisioned: str, redis_client: object) -> None:
    sale = open_sale()
    execute(
        "UPDATE inventory_activity SET starts_at = now() - interval '2 h',"
        " ends_at = now() - interval '1 h' WHERE id = %s",
        sale.activity_id,
    )
    redis_client.flushdb()  # type: ignore[attr-defined]
    assert {"window", "gate"} <= red(sale.activity_id)


def test_unknown_sale_is_red_and_exits_with_1(provisioned: str) -> None:
    err = StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("preflight", 999_999, stdout=StringIO(), stderr=err)
    assert left.value.code == 1
    assert "do not open" in err.getvalue()


def test_page_is_for_staff_only(provisioned: str) -> None:
    sale = open_sale()
    browser = Client()
    address = f"/admin/preflight/{sale.activity_id}/"
    assert browser.get(address).status_code == 302
    user = get_user_model().objects.create_user("buyer", password="x")
    browser.force_login(user)
    assert browser.get(address).status_code == 302
    browser.force_login(get_user_model().objects.create_superuser("root", password="x"))

    page = browser.get(address)

    assert page.status_code == 200
    assert "Not ready" in page.content.decode()
    assert "script-src 'self'" in page["Content-Security-Policy"]
