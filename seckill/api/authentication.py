"""Who is asking the REST API: the same bearer token as at the hot endpoint."""

from dataclasses import dataclass
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from seckill.admission.tokens import InvalidToken, verifier


@dataclass(frozen=True, slots=True)
class Buyer:
    """The user of a request: an id from a token, no row of ours."""

    user_id: str
    is_authenticated: bool = True
    is_active: bool = True

    @property
    def pk(self) -> str:
        """The id, under the name that DRF's throttles ask for."""
        return self.user_id


class BuyerTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <access token>`."""

    def authenticate(self, request: Request) -> tuple[Buyer, str] | None:
        """Return the buyer of the token, None without a token."""
        header = request.META.get("HTTP_AUTHORIZATION", "")
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return Buyer(verifier().verify(token.strip().encode())), token
        except (InvalidToken, UnicodeEncodeError):
            raise AuthenticationFailed from None

    def authenticate_header(self, request: Request) -> str:
        """Make a refusal a 401 with its challenge."""
        return "Bearer"


def buyer_id(request: Request) -> str:
    """Return the id of the authenticated buyer."""
    user: Any = request.user  # the stubs believe in a Django user
    user_id: str = user.user_id
    return user_id
