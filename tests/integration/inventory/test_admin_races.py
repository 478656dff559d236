"""The form of a sale while something else changes it: nobody's change is lost."""

import threading
import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.urls import reverse
from django.utils.timezone import localtime

from inventory import operations, rebuild
from inventory.admin import ActivityAdmin
from inventory.models import AdmissionOptions, Sku, Stock
from tests.fixtures.sql import one

pytestmark = pytest.mark.django_db(transaction=True)  # the competitor has its own connection


@pytest.fixture(autouse=True)
def _static_root(settings, tmp_path) -> None:
    """Whitenoise warns when nobody has collected the static files."""
    settings.STATIC_ROOT = tmp_path


@pytest.fixture
def operator(client):
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def before_save(monkeypatch) -> Callable[[Callable[[], object]], threading.Thread]:
    """`before_save(act)`: another connection acts after the form's read, before its save.

    The form goes on when the competitor has committed, or waits for a lock.
    """

    def arrange(act: Callable[[], object]) -> threading.Thread:
        pids: list[int] = []

        def compete() -> None:
            connection.ensure_connection()
            pids.append(connection.connection.info.backend_pid)
            try:
                act()
            finally:
                connection.close()

        thread = threading.Thread(target=compete)
        real = ActivityAdmin.save_form

        def save_form(self, request, form, change):
            thread.start()
            _until(lambda: not thread.is_alive() or (pids and _waits(pids[0])))
            return real(self, request, form, change)

        monkeypatch.setattr(ActivityAdmin, "save_form", save_form)
        return thread

    return arrange


def _waits(pid: int) -> bool:
    return bool(one("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", pid))


def _until(condition: Callable[[], object]) -> None:
    ends_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.005)


def page_of(sale) -> str:
    return reverse("admin:inventory_activity_change", args=[sale.activity_id])


def admission_form(sale) -> dict[str, object]:
    """What the browser sends from the page of a sale after DRAFT."""
    return {
        "skus-TOTAL_FORMS": 1,
        "skus-INITIAL_FORMS": 1,
        "skus-0-id": sale.sku_id,
        "skus-0-activity": sale.activity_id,
        "admission-TOTAL_FORMS": 1,
        "admission-INITIAL_FORMS": 0,
        "admission-0-activity": sale.activity_id,
        "admission-0-token_required": "on",
        "admission-0-tokens_per_unit": "2",
        "admission-0-token_lifetime_s": 77,
    }


def draft_form(sale, *, units: int) -> dict[str, object]:
    """What the browser sends from the page of a draft."""
    row, sku = sale.row, Sku.objects.get(pk=sale.sku_id)
    return admission_form(sale) | {
        "name": "a better name",
        "starts_at_0": localtime(row.starts_at).date().isoformat(),
        "starts_at_1": localtime(row.starts_at).time().isoformat("seconds"),
        "ends_at_0": localtime(row.ends_at).date().isoformat(),
        "ends_at_1": localtime(row.ends_at).time().isoformat("seconds"),
        "validity_s": row.validity_s,
        "pay_window_s": row.pay_window_s,
        "max_open": row.max_open,
        "max_pending": row.max_pending,
        "skus-0-name": sku.name,
        "skus-0-price_cents": sku.price_cents,
        "skus-0-currency": sku.currency,
        "skus-0-limit_per_user": sku.limit_per_user,
        "skus-0-initial_units": units,
    }


def test_a_stop_while_a_form_is_saved_stays(new_sale, operator, before_save) -> None:
    sale = new_sale()
    version = sale.row.version
    stop = before_save(lambda: operations.request_stop(activity_id=sale.activity_id, reason="t"))

    answer = operator.post(page_of(sale), admission_form(sale))

    stop.join()
    assert answer.status_code == 302, answer.content.decode()
    assert (sale.row.status, sale.row.version) == ("CLOSED", version + 1)
    assert sale.state().stopped is True
    assert AdmissionOptions.objects.get(pk=sale.activity_id).token_lifetime_s == 77


def test_a_loss_noted_while_a_form_is_saved_stays(new_sale, operator, before_save) -> None:
    sale = new_sale()
    noted = before_save(
        lambda: rebuild.note_new_loss(activity_id=sale.activity_id, reason="it was away")
    )

    assert operator.post(page_of(sale), admission_form(sale)).status_code == 302

    noted.join()
    assert sale.row.loss_noted_at is not None


def test_a_warm_up_waits_for_the_draft_that_is_being_saved(
    new_draft, operator, before_save
) -> None:
    sale = new_draft(units=10)
    warm_up = before_save(lambda: operations.warm_up(activity_id=sale.activity_id))

    answer = operator.post(page_of(sale), draft_form(sale, units=99))

    warm_up.join()
    assert answer.status_code == 302, answer.content.decode()
    assert (sale.row.status, sale.row.name) == ("WARM", "a better name")
    assert Stock.objects.get(pk=sale.sku_id).initial == 99
    assert Sku.objects.get(pk=sale.sku_id).initial_units == 99


def test_the_form_of_a_draft_that_was_warmed_up_meanwhile_is_refused(new_draft, operator) -> None:
    sale = new_draft(units=10)
    typed = draft_form(sale, units=99)
    operations.warm_up(activity_id=sale.activity_id)

    answer = operator.post(page_of(sale), typed)

    shown = answer.content.decode()
    assert answer.status_code == 200
    assert "Nothing was saved: the sale is WARM by now" in shown
    assert 'value="77"' in shown  # the admission options as they were typed
    assert (sale.row.status, sale.row.name) == ("WARM", "a sale")
    assert Sku.objects.get(pk=sale.sku_id).initial_units == 10
    assert not AdmissionOptions.objects.filter(pk=sale.activity_id).exists()
    # Sent from the page as it is shown now, they are saved.
    assert operator.post(page_of(sale), admission_form(sale)).status_code == 302
    assert AdmissionOptions.objects.get(pk=sale.activity_id).token_lifetime_s == 77
