"""Forms of the operators' changes, each with the sentence that says what happens to buyers."""

from datetime import datetime
from typing import Any, Final

from django import forms

from inventory import operations
from inventory.operations import EditWish
from inventory.selectors import ActivityRecord
from inventory.states import ActivityStatus, OperationKind

IN_FLIGHT: Final[dict[OperationKind, str]] = {
    OperationKind.WARM_UP: (
        "Books the initial stock and loads it into the gate, closed. Nobody can buy yet. Prices "
        "are frozen from now on."
    ),
    OperationKind.OPEN: "Buyers get in from the start of the window. Reservations are not touched.",
    OperationKind.PAUSE: (
        "New buyers are refused. Reservations that the gate accepted are honoured until their "
        "valid_until, orders can be paid."
    ),
    OperationKind.RESUME: "Buyers get in again. Reservations in flight are not touched.",
    OperationKind.CLOSE: (
        "New buyers are refused for good. Reservations that the gate accepted are honoured, orders "
        "can be paid, units of cancelled orders come back but are not sold until you open again."
    ),
    OperationKind.STOP: (
        "New buyers are refused within a second. Reservations that the gate accepted are honoured: "
        "orders still appear for a while."
    ),
    OperationKind.TOP_UP: "More units can be reserved at once. Reservations in flight stay as is.",
    OperationKind.CUT: (
        "Takes only units that nobody has reserved; it may be fewer than you ask for. Reservations "
        "and orders are not touched."
    ),
    OperationKind.EDIT: (
        "Applies to new reservations only: those in flight keep their valid_until and quantity. An "
        "earlier end or lower limits refuse new buyers, never those who hold a reservation."
    ),
}

_STARTED: Final = frozenset(ActivityStatus) - {ActivityStatus.DRAFT, ActivityStatus.SETTLED}
# In which status an operation makes sense: what the sale's page offers. The service decides.
OFFERED: Final[dict[OperationKind, frozenset[ActivityStatus]]] = {
    OperationKind.WARM_UP: frozenset({ActivityStatus.DRAFT}),
    OperationKind.OPEN: frozenset({ActivityStatus.WARM, ActivityStatus.CLOSED}),
    OperationKind.PAUSE: frozenset({ActivityStatus.OPEN}),
    OperationKind.RESUME: frozenset({ActivityStatus.PAUSED}),
    OperationKind.CLOSE: _STARTED - {ActivityStatus.CLOSED},
    OperationKind.TOP_UP: _STARTED,
    OperationKind.CUT: _STARTED,
    OperationKind.EDIT: _STARTED,
    OperationKind.STOP: _STARTED,
}


class OperationForm(forms.Form):
    """The confirmation that every change asks for."""

    operation_id = forms.CharField(widget=forms.HiddenInput)
    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept for ever beside your name.",
    )

    def __init__(self, *args: Any, record: ActivityRecord, **kwargs: Any) -> None:
        """Remember the sale as it is shown."""
        self.record = record
        kwargs.setdefault("initial", {}).setdefault("operation_id", operations.new_operation_id())
        super().__init__(*args, **kwargs)

    def arguments(self) -> dict[str, Any]:
        """Return what the service takes beside activity and user."""
        return {
            "operation_id": self.cleaned_data["operation_id"],
            "reason": self.cleaned_data["reason"],
        }


class UnitsForm(OperationForm):
    """Top-up and cut."""

    sku_id = forms.TypedChoiceField(label="SKU", coerce=int)
    units = forms.IntegerField(min_value=1, help_text="How many more or fewer; not the new total.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the sale's SKUs."""
        super().__init__(*args, **kwargs)
        field = self.fields["sku_id"]
        assert isinstance(field, forms.TypedChoiceField)  # noqa: S101
        field.choices = [
            (sku.sku_id, f"{sku.name} (available {sku.available})") for sku in self.record.skus
        ]
        self.order_fields(["sku_id", "units", "reason", "operation_id"])

    def arguments(self) -> dict[str, Any]:
        """Add SKU and units."""
        units = {key: self.cleaned_data[key] for key in ("sku_id", "units")}
        return super().arguments() | units


class EditForm(OperationForm):
    """Window and limits; shows what is, carries the version that was shown."""

    expected_version = forms.IntegerField(widget=forms.HiddenInput)
    starts_at = forms.DateTimeField(help_text="UTC")
    ends_at = forms.DateTimeField(help_text="UTC")
    validity_s = forms.IntegerField(
        min_value=1,
        label="Validity, s",
        help_text="How long an accepted buyer's units are kept while his order is made.",
    )
    max_open = forms.IntegerField(
        min_value=1, help_text="Reservations without an outcome; more answer BUSY."
    )
    max_pending = forms.IntegerField(
        min_value=1, help_text="Reservations not known to be in the broker; more answer BUSY."
    )

    def __init__(self, *args: Any, record: ActivityRecord, **kwargs: Any) -> None:
        """Fill in the present values, one limit for each SKU."""
        initial: dict[str, Any] = {
            "expected_version": record.version,
            "starts_at": record.starts_at,
            "ends_at": record.ends_at,
            "validity_s": record.validity_s,
            "max_open": record.max_open,
            "max_pending": record.max_pending,
        }
        super().__init__(*args, record=record, initial=initial, **kwargs)
        for sku in record.skus:
            self.fields[f"limit_{sku.sku_id}"] = forms.IntegerField(
                min_value=1, label=f"Limit per user: {sku.name}", initial=sku.limit_per_user
            )
        self.order_fields([name for name in self.fields if name != "reason"])

    def arguments(self) -> dict[str, Any]:
        """Add the wish and the version that was shown."""

        def instant(name: str) -> datetime:
            value: datetime = self.cleaned_data[name]
            return value

        return super().arguments() | {
            "expected_version": self.cleaned_data["expected_version"],
            "wish": EditWish(
                starts_at=instant("starts_at"),
                ends_at=instant("ends_at"),
                validity_s=self.cleaned_data["validity_s"],
                max_open=self.cleaned_data["max_open"],
                max_pending=self.cleaned_data["max_pending"],
                limit_per_user={
                    sku.sku_id: self.cleaned_data[f"limit_{sku.sku_id}"] for sku in self.record.skus
                },
            ),
        }


FORMS: Final[dict[OperationKind, type[OperationForm]]] = {
    OperationKind.TOP_UP: UnitsForm,
    OperationKind.CUT: UnitsForm,
    OperationKind.EDIT: EditForm,
}
