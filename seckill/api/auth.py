"""Tokens for buyers: from a password, from the demo's log-in, from a refresh token."""

from django.conf import settings
from django.contrib.auth import authenticate
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from seckill.admission.tokens import USER_ID, InvalidToken, issue, verifier
from seckill.api.problems import Problem
from seckill.api.schema import problems
from seckill.password_limit import WINDOW_S, may_guess


class CredentialsSerializer(serializers.Serializer[object]):
    """A Django user's name and password; or, where the demo log-in is on, any `user_id`."""

    username = serializers.CharField(max_length=64, required=False)
    password = serializers.CharField(max_length=128, required=False, trim_whitespace=False)
    user_id = serializers.RegexField(rf"^{USER_ID.pattern}\Z", required=False)

    def validate(self, attrs: dict[str, str]) -> dict[str, str]:
        """Ask for one of both ways."""
        if not ("user_id" in attrs or {"username", "password"} <= attrs.keys()):
            raise serializers.ValidationError("username and password are needed")
        return attrs


class TokensSerializer(serializers.Serializer[object]):
    """`access` goes into the Authorization header; `refresh` buys a new pair."""

    access = serializers.CharField(read_only=True)
    refresh = serializers.CharField(read_only=True)
    token_type = serializers.CharField(read_only=True, default="Bearer")
    expires_in = serializers.IntegerField(read_only=True, help_text="Seconds.")


class RefreshSerializer(serializers.Serializer[object]):
    """A refresh token."""

    refresh = serializers.CharField(max_length=4096)


def token_pair(user_id: str) -> dict[str, object]:
    """Issue an access and a refresh token.

    Raises:
        Problem: tokens come from elsewhere, or the id cannot be a buyer's.
    """
    try:
        return {
            "access": issue(user_id, use="access", lifetime_s=settings.SECKILL_ACCESS_TOKEN_S),
            "refresh": issue(user_id, use="refresh", lifetime_s=settings.SECKILL_REFRESH_TOKEN_S),
            "token_type": "Bearer",
            "expires_in": settings.SECKILL_ACCESS_TOKEN_S,
        }
    except InvalidToken as error:
        raise Problem("FORBIDDEN", detail=str(error)) from None


class TokenView(APIView):
    """Log in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="auth_token",
        request=CredentialsSerializer,
        responses={200: TokensSerializer, **problems(400, 401, 403, 429)},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange credentials for a pair of tokens."""
        credentials = CredentialsSerializer(data=request.data)
        credentials.is_valid(raise_exception=True)
        data = credentials.validated_data
        if "user_id" in data:
            if not settings.SECKILL_DEMO_LOGIN:
                raise Problem("FORBIDDEN", detail="The demo log-in is off here.")
            return Response(token_pair(data["user_id"]))
        # The name that the serializer made of it: the raw one has many spellings.
        if not may_guess(data["username"]):
            raise Throttled(wait=WINDOW_S)
        user = authenticate(request, username=data["username"], password=data["password"])
        if user is None:
            raise Problem("UNAUTHENTICATED", detail="Name or password is wrong.")
        return Response(token_pair(user.get_username()))


class RefreshView(APIView):
    """Stay logged in."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="auth_refresh",
        request=RefreshSerializer,
        responses={200: TokensSerializer, **problems(400, 401)},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Exchange a refresh token for a new pair of tokens."""
        body = RefreshSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            claims = verifier().claims(body.validated_data["refresh"])
        except InvalidToken:
            raise Problem("UNAUTHENTICATED") from None
        user_id = claims.get("sub")
        if claims.get("use") != "refresh" or not isinstance(user_id, str):
            raise Problem("UNAUTHENTICATED")
        return Response(token_pair(user_id))
