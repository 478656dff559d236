"""Structured logs: one JSON object a line (or `console` for people), the same for every process.

Ids are logged, payloads never; buyers' ids can be replaced by pseudonyms. `structlog` renders our
own and the libraries' lines alike. The fields of a producer's line are made in
`messaging/publish_log.py`, a consumer's in `messaging/consume_log.py`.
"""

import hmac
import logging.config
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

_BUYER_FIELDS: Final = ("user_id", "user")


def logging_config(*, level: str, fmt: str, pseudonym_key: str = "") -> None:
    """Configure logging and structlog.

    Args:
        level: name of a level, such as INFO.
        fmt: `json` or `console`.
        pseudonym_key: when given, buyers' ids become pseudonyms: the same buyer has the same one
            in every line and process, and who lacks the key cannot tell who it is.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if pseudonym_key:
        shared.append(_pseudonyms(pseudonym_key.encode()))
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if fmt == "console" else structlog.processors.JSONRenderer()
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "structured": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "processors": [
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        structlog.processors.format_exc_info,
                        renderer,
                    ],
                    "foreign_pre_chain": shared,
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
            "root": {"handlers": ["stderr"], "level": level},
            "loggers": {
                "django_structlog": {"level": "WARNING"},
                # The client logs a 25-line traceback for each failed heartbeat.
                "concurrent.futures": {"level": "CRITICAL"},
                "rocketmq-python-client": {"level": "WARNING"},
            },
        }
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _pseudonyms(
    key: bytes,
) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    """Return the processor that replaces buyers' ids."""

    def replace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name in _BUYER_FIELDS:
            if event.get(name):
                digest = hmac.digest(key, str(event[name]).encode(), "sha256")
                event[name] = f"buyer-{digest.hex()[:12]}"
        return event

    return replace
