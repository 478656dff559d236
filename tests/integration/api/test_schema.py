"""The schema is valid, complete, and what the docs page loads."""

from io import StringIO

import yaml
from django.core.management import call_command
from django.test import Client


def test_schema_validates_without_a_warning_and_has_the_hot_endpoint() -> None:
    out = StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=out)
    schema = yaml.safe_load(out.getvalue())

    hot = schema["paths"]["/api/v1/activities/{activity_id}/skus/{sku_id}/reservations"]["post"]
    assert set(hot["responses"]) == {
        *("202", "400", "401", "403", "404", "405", "409", "413", "415", "422", "429", "503")
    }
    assert "Idempotency-Key" in {parameter["name"] for parameter in hot["parameters"]}
    assert (
        "/api/v1/activities/{activity_id}/reservations/{reservation_id}/events" in schema["paths"]
    )


def test_docs_page_is_served_without_foreign_assets() -> None:
    page = Client().get("/api/docs").content.decode()
    assert "cdn" not in page
    assert "/static/drf_spectacular_sidecar/" in page
