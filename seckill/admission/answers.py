"""The answers that carry a reservation."""

from typing import Final

from inventory.contracts import Reservation
from inventory.states import GateReservationStatus, MqStatus
from messaging.envelope import format_instant
from seckill.admission.problems import Answer, build

_ACCEPTED_HEADERS: Final = [(b"content-type", b"application/json")]


def status_path(activity_id: int, reservation_id: str) -> str:
    """Return the address of a reservation's status."""
    return f"/api/v1/activities/{activity_id}/reservations/{reservation_id}"


def live_status(reservation: Reservation) -> str:
    """Return the public status of a live reservation, as the gate knows it."""
    if reservation.status == GateReservationStatus.CONFIRMED:
        return "ORDERED"
    return "QUEUED" if reservation.mq_status == MqStatus.MQ_SENT else "PENDING"


def accepted(reservation: Reservation, status: str) -> Answer:
    """Build the 202 of a reservation seen alive; every value is ours and needs no escaping."""
    reservation_id = reservation.reservation_id.encode()
    path = b"/api/v1/activities/%d/reservations/%b" % (reservation.activity_id, reservation_id)
    body = (
        b'{"reservation_id":"%b","order_id":"%b","status":"%b",'
        b'"status_url":"%b","events_url":"%b/events","valid_until":"%b"}'
    ) % (
        reservation_id,
        reservation.order_id.encode(),
        status.encode(),
        path,
        path,
        format_instant(reservation.valid_until_ms).encode(),
    )
    return Answer(status, 202, _ACCEPTED_HEADERS, body)


def ended(activity_id: int, reservation_id: str, reason: str) -> Answer:
    """Build the 409 of a reservation that is over, with the reason it ended for."""
    return build(
        "RESERVATION_ENDED",
        reason=reason,
        reservation_id=reservation_id,
        status_url=status_path(activity_id, reservation_id),
    )


def already_reserved(reservation: Reservation) -> Answer:
    """Build the 409 that is a success for the caller: it names the reservation he holds."""
    path = status_path(reservation.activity_id, reservation.reservation_id)
    return build(
        "ALREADY_RESERVED",
        reservation_id=reservation.reservation_id,
        order_id=reservation.order_id,
        status_url=path,
        events_url=f"{path}/events",
    )
