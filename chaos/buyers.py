"""The buyers of a seed: click, click again, ask again without a clear answer, pay, cancel."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import jwt
import urllib3

from chaos.plan import BuyerPlan

_PATIENCE_S: Final = 25.0  # how long somebody without a clear answer goes on asking
_PAUSE_S: Final = 0.4
_ORDER_PATIENCE_S: Final = 12.0
_UNCLEAR: Final = frozenset({0, 429, 500, 502, 503, 504})
_SAYS_NOTHING: Final = frozenset({0, 408, 429})  # and what begins with 5: of no key in particular


class Refusal(NamedTuple):
    """A clear answer to a key that names a reservation: neither that one, nor that it is over."""

    reservation_id: str
    status: int
    code: str
    at_ms: int


@dataclass
class Told:
    """What buyers were told; shared by all of them."""

    promised: dict[str, str] = field(default_factory=dict)  # reservation → status of the answer
    codes: Counter[str] = field(default_factory=Counter)
    broken_rules: list[str] = field(default_factory=list)
    # One key, two reservations: only a Redis that forgot the first can do that.
    renewed: list[tuple[str, str]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: int, body: dict[str, Any]) -> None:
        """Count an answer; remember what it promises."""
        code = str(body.get("code") or body.get("status") or "")
        with self.lock:
            self.codes[f"{status} {code}".strip()] += 1
            if "reservation_id" in body and (status == 202 or code == "ALREADY_RESERVED"):
                known = self.promised.get(body["reservation_id"])
                self.promised[body["reservation_id"]] = known if known == "QUEUED" else code

    def complain(self, rule: str) -> None:
        """Note that an answer broke the contract of the API."""
        with self.lock:
            self.broken_rules.append(rule)


class Crowd:
    """All buyers of a seed, a thread each.

    Args:
        base_url: of the web server.
        secret: signs their tokens.
        path: sale and SKUs: SKU ids in the order of the plan.
    """

    def __init__(
        self, *, base_url: str, secret: str, activity_id: int, sku_ids: tuple[int, ...]
    ) -> None:
        self._base = base_url
        self._secret = secret
        self._activity = activity_id
        self._skus = sku_ids
        self._http = urllib3.PoolManager(maxsize=80, retries=False, timeout=6)
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self.told = Told()

    def begin(self, buyers: tuple[BuyerPlan, ...], opened_at: float) -> None:
        """Let everybody come at his time."""
        for buyer in buyers:
            thread = threading.Thread(target=self._live, args=(buyer, opened_at), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self, *, timeout_s: float) -> None:
        """Wait until everybody has what he wants, or is tired of asking."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._ended.set()
        for thread in self._threads:
            thread.join(10)
        self._http.clear()

    def buy(self, user: str, *, sku: int, quantity: int, key: str) -> tuple[int, dict[str, Any]]:
        """One POST; status 0 means that no answer came."""
        status, body = self._call(
            "POST",
            f"/api/v1/activities/{self._activity}/skus/{self._skus[sku]}/reservations",
            user,
            body={"quantity": quantity},
            headers={"Idempotency-Key": key},
        )
        self.told.note(status, body)
        return status, body

    def _live(self, buyer: BuyerPlan, opened_at: float) -> None:
        time.sleep(max(0.0, opened_at + buyer.at_s - time.monotonic()))
        key = f"k-{buyer.user.partition('@')[0]}"
        if buyer.second == "double":
            threading.Thread(
                target=self.buy,
                args=(buyer.user,),
                kwargs={"sku": buyer.sku, "quantity": buyer.quantity, "key": f"{key}-2"},
                daemon=True,
            ).start()
        status, body = self._until_clear(buyer, key)
        if status != 202:
            return
        if buyer.second == "same_key":
            self._same_again(buyer, key, body["reservation_id"])
        elif buyer.second == "conflict":
            self._conflict(buyer, key, body["reservation_id"])
        if buyer.afterwards != "nothing":
            time.sleep(buyer.wait_s)
            self._afterwards(buyer, body["order_id"])

    def _until_clear(self, buyer: BuyerPlan, key: str) -> tuple[int, dict[str, Any]]:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            status, body = self.buy(buyer.user, sku=buyer.sku, quantity=buyer.quantity, key=key)
            if status not in _UNCLEAR or time.monotonic() > deadline or self._ended.is_set():
                return status, body
            time.sleep(_PAUSE_S)

    def _same_again(self, buyer: BuyerPlan, key: str, reservation_id: str) -> None:
        status, body = self.buy(buyer.user, sku=buyer.sku, quantity=buyer.quantity, key=key)
        if status == 202:
            if body["reservation_id"] != reservation_id:
                self.told.renewed.append((reservation_id, body["reservation_id"]))
        else:
            self._clearly(status, body, reservation_id, instead_of="RESERVATION_ENDED")

    def _conflict(self, buyer: BuyerPlan, key: str, reservation_id: str) -> None:
        status, body = self.buy(buyer.user, sku=buyer.sku, quantity=buyer.quantity + 1, key=key)
        if status == 202:
            self.told.complain(f"{buyer.user}: a used key was accepted with another body")
        else:
            self._clearly(status, body, reservation_id, instead_of="REQUEST_CONFLICT")

    def _clearly(
        self, status: int, body: dict[str, Any], reservation_id: str, *, instead_of: str
    ) -> None:
        """Note a clear answer that is not what this key's second request must get."""
        code = str(body.get("code", ""))
        if status not in _SAYS_NOTHING and status < 500 and code != instead_of:
            now_ms = time.time_ns() // 1_000_000
            with self.told.lock:
                self.told.refused.append(Refusal(reservation_id, status, code, now_ms))

    def _afterwards(self, buyer: BuyerPlan, order_id: str) -> None:
        """Pay, pay twice at once, cancel, or both at once, as soon as there is an order."""
        steps = {
            "pay": ("payments",),
            "pay_twice": ("payments", "payments"),
            "cancel": ("cancel",),
            "pay_and_cancel": ("payments", "cancel"),
        }[buyer.afterwards]
        deadline = time.monotonic() + _ORDER_PATIENCE_S
        while time.monotonic() < deadline and not self._ended.is_set():
            if self._call("GET", f"/api/v1/orders/{order_id}", buyer.user)[0] == 200:
                break
            time.sleep(_PAUSE_S)
        else:
            return
        threads = [
            threading.Thread(
                target=self._insist, args=(f"/api/v1/orders/{order_id}/{step}", buyer.user)
            )
            for step in steps
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _insist(self, path: str, user: str) -> None:
        """Repeat a step until an answer comes that is not a fault of the server's."""
        deadline = time.monotonic() + _ORDER_PATIENCE_S
        while time.monotonic() < deadline and not self._ended.is_set():
            status, body = self._call("POST", path, user)
            with self.told.lock:
                code = body.get("code", "") if status >= 400 else ""
                self.told.codes[f"{path.rsplit('/', 1)[1]} {status} {code}".strip()] += 1
            if status not in _UNCLEAR:
                return
            time.sleep(_PAUSE_S)

    def _call(
        self,
        method: str,
        path: str,
        user: str,
        *,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._http.request(
                method,
                self._base + path,
                body=None if body is None else json.dumps(body).encode(),
                headers={
                    "Authorization": f"Bearer {self._token(user)}",
                    "Content-Type": "application/json",
                    **(headers or {}),
                },
            )
            found = json.loads(answer.data or b"{}")
        except (urllib3.exceptions.HTTPError, ValueError):
            return 0, {}
        return answer.status, found if isinstance(found, dict) else {}

    def _token(self, user: str) -> str:
        # As an identity provider would have issued it a while ago: clocks may differ by a minute.
        issued = int(time.time()) - 300
        claims = {"sub": user, "iat": issued, "exp": issued + 7_200, "typ": "access"}
        return jwt.encode(claims, self._secret, algorithm="HS256")
