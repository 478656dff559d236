"""Problem details for everything that DRF refuses or that breaks in a view."""

import traceback
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions, status
from rest_framework.response import Response

from inventory.errors import GateUnavailable
from orders.errors import OrderNotFound, OrderStateConflict
from seckill.admission.problems import (
    CONTENT_TYPE,
    problem_document,
    problem_headers,
)

log = structlog.get_logger(__name__)

_BY_STATUS = {
    status.HTTP_400_BAD_REQUEST: "BAD_REQUEST",
    status.HTTP_401_UNAUTHORIZED: "UNAUTHENTICATED",
    status.HTTP_403_FORBIDDEN: "FORBIDDEN",
    status.HTTP_404_NOT_FOUND: "NOT_FOUND",
    status.HTTP_405_METHOD_NOT_ALLOWED: "METHOD_NOT_ALLOWED",
    status.HTTP_406_NOT_ACCEPTABLE: "NOT_ACCEPTABLE",
    status.HTTP_413_REQUEST_ENTITY_TOO_LARGE: "TOO_LARGE",
    status.HTTP_415_UNSUPPORTED_MEDIA_TYPE: "UNSUPPORTED_MEDIA_TYPE",
    status.HTTP_429_TOO_MANY_REQUESTS: "THROTTLED",
}


class Problem(Exception):
    """Raised by a view to answer with a problem; `extra` are its own members."""

    def __init__(self, code: str, *, detail: str | None = None, **extra: Any) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.extra = extra


def problem_response(exc: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler: every failure is a problem+json, and no text of ours leaks."""
    problem = _problem_of(exc)
    if problem.code in {"INTERNAL", "UNAVAILABLE"}:
        view = type(context.get("view")).__name__
        log.error("api_failed", code=problem.code, view=view, exc_info=exc)
    headers = problem_headers(problem.code)
    wait_s = getattr(exc, "wait", None)  # of a Throttled
    if wait_s is not None:
        headers["Retry-After"] = str(max(1, round(wait_s)))
    document = problem_document(problem.code, detail=problem.detail, **problem.extra)
    return Response(document, status=document["status"], headers=headers, content_type=CONTENT_TYPE)


def _problem_of(exc: Exception) -> Problem:
    if isinstance(exc, Problem):
        return exc
    if _is_nested_too_deep(exc):
        return Problem("BAD_REQUEST")
    if isinstance(exc, exceptions.ValidationError):
        return Problem("BAD_REQUEST", errors=exc.get_full_details())
    if isinstance(exc, Http404 | OrderNotFound):
        return Problem("NOT_FOUND")
    if isinstance(exc, PermissionDenied):
        return Problem("FORBIDDEN")
    if isinstance(exc, OrderStateConflict):
        return Problem("ORDER_STATE_CONFLICT", order_status=exc.status)
    if isinstance(exc, exceptions.APIException):
        return Problem(_BY_STATUS.get(exc.status_code, "INTERNAL"))
    if isinstance(exc, GateUnavailable | OperationalError | InterfaceError):
        return Problem("UNAVAILABLE")
    if isinstance(exc, DatabaseError):
        return Problem("INTERNAL")
    return Problem("INTERNAL")


def _is_nested_too_deep(exc: Exception) -> bool:
    """Tell whether a body's nesting was too deep for `json`; our own endless recursions are ours.

    DRF's parser expects a ValueError of an ill body only.
    """
    if not isinstance(exc, RecursionError):
        return False
    frames = list(traceback.walk_tb(exc.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__") == "json.decoder"


def _page(code: str, request: HttpRequest) -> JsonResponse:
    document = problem_document(code)
    return JsonResponse(
        document,
        status=document["status"],
        headers=problem_headers(code),
        content_type=CONTENT_TYPE,
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """Answer addresses that Django does not know (`handler404`)."""
    return _page("NOT_FOUND", request)


def server_error(request: HttpRequest) -> JsonResponse:
    """Answer what broke outside DRF (`handler500`)."""
    return _page("INTERNAL", request)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> JsonResponse:
    """Answer requests that Django refuses, such as a foreign Host header (`handler400`)."""
    return _page("BAD_REQUEST", request)
