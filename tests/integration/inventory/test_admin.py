"""The operators' pages: permissions, confirmations, no change on GET."""

import itertools

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse

from inventory import keys, operations
from inventory.models import Activity, GateOperation, Sku
from inventory.states import OperationKind

CODES = {
    "operate_gate": {"WARM_UP", "OPEN", "PAUSE", "RESUME", "CLOSE", "EDIT"},
    "change_units": {"TOP_UP", "CUT"},
    "stop_sale": {"STOP"},
}


@pytest.fixture(autouse=True)
def _static_root(settings, tmp_path) -> None:
    """Whitenoise warns when nobody has collected the static files."""
    settings.STATIC_ROOT = tmp_path


def staff(*codes: str) -> User:
    user = User.objects.create_user(f"op-{'-'.join(codes) or 'none'}", is_staff=True)
    view = ["view_activity", "view_sku"]
    user.user_permissions.set(Permission.objects.filter(codename__in=[*codes, *view]))
    return user


def url(sale, kind: str) -> str:
    return reverse("admin:inventory_activity_operate", args=[sale.activity_id, kind])


def form_of(sale, kind: str) -> dict[str, object]:
    data: dict[str, object] = {"operation_id": f"op_{kind}", "reason": "because"}
    if kind in {"TOP_UP", "CUT"}:
        data |= {"sku_id": sale.sku_id, "units": 3}
    if kind == "EDIT":
        row = sale.row
        data |= {
            "expected_version": row.version,
            "starts_at": row.starts_at.isoformat(),
            "ends_at": row.ends_at.isoformat(),
            "validity_s": row.validity_s,
            "max_open": 77,
            "max_pending": row.max_pending,
            f"limit_{sale.sku_id}": 2,
        }
    return data


def test_each_operation_needs_its_permission_and_get_changes_nothing(new_sale, client) -> None:
    sale = new_sale()
    before = GateOperation.objects.count()
    for code, kind in itertools.product([*CODES, ""], OperationKind):
        client.force_login(
            User.objects.filter(username=f"op-{code or 'none'}").first()
            or staff(*filter(None, [code]))
        )
        allowed = kind.value in CODES.get(code, set())
        assert client.get(url(sale, kind.value)).status_code == (200 if allowed else 403)
        if not allowed:
            assert client.post(url(sale, kind.value), form_of(sale, kind.value)).status_code == 403
    assert GateOperation.objects.count() == before
    assert sale.row.status == "OPEN"


def test_every_operation_works_from_its_form(new_draft, client) -> None:
    sale = new_draft()
    client.force_login(staff(*CODES))
    for kind in ("WARM_UP", "OPEN", "TOP_UP", "CUT", "EDIT", "PAUSE", "RESUME", "CLOSE", "STOP"):
        page = client.get(url(sale, kind))
        assert "Reservations in flight" in page.content.decode()
        answer = client.post(url(sale, kind), form_of(sale, kind))
        assert answer.status_code == 302, answer.content.decode()
        row = sale.operation(f"op_{kind}")
        assert (row.status, row.reason) == ("DONE", "because")
        assert row.requested_by.username.startswith("op-")
        assert client.get(answer["location"]).status_code == 200
    assert (sale.row.status, sale.row.max_open) == ("CLOSED", 77)
    assert sale.state().stopped is True
    assert Sku.objects.get(pk=sale.sku_id).limit_per_user == 2
    sale.assert_conserved()


def test_a_form_sent_twice_acts_once(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    for _ in range(2):
        assert client.post(url(sale, "TOP_UP"), form_of(sale, "TOP_UP")).status_code == 302
    assert sale.final.available == 13


def test_a_refusal_is_shown_on_the_form(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    answer = client.post(url(sale, "RESUME"), form_of(sale, "RESUME"))
    assert answer.status_code == 200
    assert "is OPEN" in answer.content.decode()
    without = client.post(url(sale, "STOP"), form_of(sale, "STOP") | {"reason": ""})
    assert "This field is required" in without.content.decode()
    assert sale.row.status == "OPEN"


def test_strangers_are_sent_to_the_log_in(new_sale, client) -> None:
    sale = new_sale()
    answer = client.post(url(sale, "STOP"), form_of(sale, "STOP"))
    assert answer.status_code == 302
    assert "/login/" in answer["location"]
    client.force_login(User.objects.create_user("buyer"))
    assert "/login/" in client.post(url(sale, "STOP"), form_of(sale, "STOP"))["location"]
    assert sale.row.status == "OPEN"


def test_other_methods_are_refused(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    for method in (client.put, client.delete, client.patch):
        assert method(url(sale, "STOP")).status_code == 405


def test_unknown_sales_and_operations_are_not_found(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    assert client.get(url(sale, "EXPLODE")).status_code == 404
    missing = reverse("admin:inventory_activity_operate", args=[10**6, "STOP"])
    assert client.get(missing).status_code == 404


def test_a_sale_is_edited_in_draft_only(new_draft, client) -> None:
    sale = new_draft()
    client.force_login(User.objects.create_superuser("root"))
    page = reverse("admin:inventory_activity_change", args=[sale.activity_id])
    assert 'name="skus-0-price_cents"' in client.get(page).content.decode()

    operations.warm_up(activity_id=sale.activity_id)

    shown = client.get(page).content.decode()
    assert 'name="skus-0-price_cents"' not in shown
    assert 'name="name"' not in shown
    assert "Gate: CLOSED" in shown
    client.post(
        page,
        {
            "name": "hacked",
            "status": "OPEN",
            "skus-TOTAL_FORMS": 1,
            "skus-INITIAL_FORMS": 1,
            "skus-0-id": sale.sku_id,
            "skus-0-activity": sale.activity_id,
            "skus-0-price_cents": 1,
        },
    )
    assert (sale.row.name, sale.row.status) == ("a sale", "WARM")
    assert Sku.objects.get(pk=sale.sku_id).price_cents == 4_900
    delete = reverse("admin:inventory_activity_delete", args=[sale.activity_id])
    assert client.post(delete, {"post": "yes"}).status_code == 403


def test_a_lost_gate_is_shown(new_sale, client) -> None:
    sale = new_sale()
    sale.client.flushdb()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(reverse("admin:inventory_activity_change", args=[sale.activity_id]))
    assert "Gate: GATE_LOST" in page.content.decode()


def test_lists_are_shown_and_rows_of_services_are_read_only(new_sale, client) -> None:
    new_sale()
    client.force_login(User.objects.create_superuser("root"))
    for model in ("gateoperation", "stock", "stockledger", "activity"):
        assert client.get(reverse(f"admin:inventory_{model}_changelist")).status_code == 200
        add = client.get(reverse(f"admin:inventory_{model}_add")).status_code
        assert add == (200 if model == "activity" else 403)
    assert Activity.objects.count() == 1


def test_a_cut_says_how_many_units_it_really_took(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    answer = client.post(url(sale, "CUT"), form_of(sale, "CUT") | {"units": 30})
    shown = client.get(answer["location"]).content.decode()
    assert "CUT op_CUT: DONE, 10 of 30 units taken" in shown
    answer = client.post(url(sale, "TOP_UP"), form_of(sale, "TOP_UP") | {"units": 1})
    assert "DONE, 1 of 1 unit added" in client.get(answer["location"]).content.decode()


def test_a_stop_is_offered_until_every_gate_has_stopped(new_sale, client) -> None:
    sale = new_sale()
    client.force_login(staff(*CODES))
    page = reverse("admin:inventory_activity_change", args=[sale.activity_id])
    assert url(sale, "STOP") in client.get(page).content.decode()
    operations.request_stop(activity_id=sale.activity_id, reason="t")
    assert sale.state().stopped is True
    assert url(sale, "STOP") not in client.get(page).content.decode()
    # Closed in PostgreSQL, but the gate has not followed: a stop still means something.
    sale.client.hset(keys.gate(sale.activity_id, sale.sku_id), "stopped", "0")
    assert url(sale, "STOP") in client.get(page).content.decode()
