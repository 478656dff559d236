"""Purchase tokens: who has one may try to reserve in a sale that requires them."""

import time
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

import structlog
from django.conf import settings
from django.utils.module_loading import import_string
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from inventory.admission_rules import TokenTerms, is_denied, token_terms
from inventory.gate import gate
from inventory.purchase_tokens import issue_token
from seckill.admission.purchase_tokens import make_token
from seckill.api.authentication import buyer_id
from seckill.api.problems import Problem
from seckill.api.schema import problems

_KEPT_S: Final = 1.0
_CAPTCHA_LENGTH: Final = 4_096

log = structlog.get_logger(__name__)


class TokenRequestSerializer(serializers.Serializer[object]):
    """What a sale may ask for."""

    captcha = serializers.CharField(
        required=False, allow_blank=True, max_length=_CAPTCHA_LENGTH, default=""
    )


class PurchaseTokenSerializer(serializers.Serializer[object]):
    """A one-time token for one buyer and SKU."""

    token = serializers.CharField(help_text="Send it as the header `Purchase-Token`.")
    expires_at = serializers.DateTimeField()


class _Terms:
    """Terms by SKU, read at most once a second: a crowd costs the database one read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[int, int], tuple[float, TokenTerms | None]] = {}

    def of(self, activity_id: int, sku_id: int) -> TokenTerms | None:
        """Return the terms of a SKU, None when there is no such SKU."""
        now, key = time.monotonic(), (activity_id, sku_id)
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < _KEPT_S:
            return kept[1]
        terms = token_terms(activity_id=activity_id, sku_id=sku_id)
        with self._lock:
            if len(self._kept) > 10_000:
                self._kept.clear()
            self._kept[key] = (now, terms)
        return terms


_terms: Final = _Terms()


class PurchaseTokenView(APIView):
    """The caller's purchase token of a SKU."""

    @extend_schema(
        operation_id="purchase_token",
        request=TokenRequestSerializer,
        responses={201: PurchaseTokenSerializer, **problems(400, 401, 403, 404, 409, 501, 503)},
    )
    def post(self, request: Request, activity_id: int, sku_id: int) -> Response:
        """Issue a token, or name again the valid one that the caller has.

        At most k tokens for each unit are valid at a time. A token is used up by the first
        reservation that is made with it; repeats with it name that reservation. Whoever holds
        a reservation needs no token to be told so.
        """
        body = TokenRequestSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        user_id = buyer_id(request)
        terms = _terms.of(activity_id, sku_id)
        if terms is None:
            raise Problem("NOT_FOUND")
        if not terms.required:
            raise Problem("TOKEN_NOT_NEEDED")
        if is_denied(activity_id=activity_id, user_id=user_id):
            raise Problem("DENIED")
        if terms.captcha_required:
            _require_captcha(user_id, activity_id, body.validated_data["captcha"])
        ends_ms = gate().run(
            issue_token(
                activity_id=activity_id,
                sku_id=sku_id,
                user_id=user_id,
                limit=terms.limit,
                lifetime_ms=terms.lifetime_s * 1000,
            )
        )
        if not ends_ms:
            raise Problem("NO_TOKENS_LEFT")
        token = make_token(
            activity_id=activity_id, sku_id=sku_id, user_id=user_id, ends_s=ends_ms // 1000
        )
        expires_at = datetime.fromtimestamp(ends_ms / 1000, tz=UTC)
        answer = PurchaseTokenSerializer({"token": token, "expires_at": expires_at})
        return Response(answer.data, status=201, headers={"Cache-Control": "no-store"})


def _require_captcha(user_id: str, activity_id: int, answer: str) -> None:
    """Ask the installation's hook; without one, or when it breaks, nobody passes."""
    if not settings.SECKILL_CAPTCHA:
        raise Problem("NOT_IMPLEMENTED", detail="A captcha is required, but none is set up.")
    hook: Any = import_string(settings.SECKILL_CAPTCHA)
    try:
        passed = bool(hook(user_id=user_id, activity_id=activity_id, answer=answer))
    except Exception as error:
        log.error("captcha_failed", error=repr(error), activity_id=activity_id)
        raise Problem("UNAVAILABLE") from error
    if not passed:
        raise Problem("CAPTCHA_FAILED")
