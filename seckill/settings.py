"""All settings, read from the environment in this one place.

A missing or ill-formed variable ends the start with one line that names it. The dev stack prints
a full set: `eval "$(bin/stack env)"`. Relations between the numbers are system checks
(`seckill/checks.py`).
"""

import sys
from pathlib import Path

from environs import Env, EnvError

from seckill.logs import logging_config
from seckill.observability.nothing import count_nothing

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent


def _required(name: str, what: str) -> str:
    """Return the variable's value, or end the process with one line that says what to do."""
    value: str = env.str(name, "")
    if value:
        return value
    sys.stderr.write(
        f"seckill: the environment variable {name} is missing ({what}). "
        'For a local stack: bin/stack up && eval "$(bin/stack env)"\n'
    )
    raise SystemExit(78)  # EX_CONFIG


def _pairs(name: str, default: dict[str, str]) -> dict[str, str]:
    """Return `key=value,key=value` as a dict; the library's own error would not name it."""
    try:
        return dict(env.dict(name, default))
    except ValueError:
        raise EnvError(f'Environment variable "{name}" invalid: Not key=value,key=value.') from None


def _one_of(name: str, *values: str) -> str:
    """Return one of some words; the first when the variable is not set."""
    value: str = env.str(name, values[0])
    if value not in values:
        raise EnvError(f'Environment variable "{name}" invalid: Not one of {", ".join(values)}.')
    return value


try:
    # --- Django -----------------------------------------------------------------------------
    DEBUG: bool = env.bool("DJANGO_DEBUG", False)
    SECRET_KEY = _required("SECKILL_SECRET_KEY", "signs sessions, 50 random characters")
    ALLOWED_HOSTS: list[str] = env.list(
        "SECKILL_ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"]
    )
    CSRF_TRUSTED_ORIGINS: list[str] = env.list("SECKILL_TRUSTED_ORIGINS", [])
    SECURE_COOKIES: bool = env.bool("SECKILL_HTTPS", False)

    # --- Stores and broker ------------------------------------------------------------------
    _required("DATABASE_URL", "postgresql://user:password@host:5432/seckill")
    _database = dict(env.dj_db_url("DATABASE_URL"))
    # Where no transaction of orders sets its own, SECKILL_STATEMENT_TIMEOUT_MS.
    _session_statement_timeout_ms: int = env.int("SECKILL_SESSION_STATEMENT_TIMEOUT_MS", 60_000)
    _test_database: str = env.str("SECKILL_TEST_DATABASE", "test_seckill")
    REDIS_URL = _required("REDIS_URL", "the gate: redis://host:6379/0")
    REDIS_CLUSTER: bool = env.bool("SECKILL_REDIS_CLUSTER", False)
    CACHE_URL: str = env.str("CACHE_URL", "")
    CELERY_BROKER_URL: str = env.str("CELERY_BROKER_URL", "")
    ROCKETMQ_ENDPOINTS = _required("ROCKETMQ_ENDPOINTS", "gRPC address of the proxy, host:8081")
    ROCKETMQ_ACCESS_KEY: str = env.str("ROCKETMQ_ACCESS_KEY", "")
    ROCKETMQ_SECRET_KEY: str = env.str("ROCKETMQ_SECRET_KEY", "")
    ROCKETMQ_TLS: bool = env.bool("ROCKETMQ_TLS", False)
    # Only provision_broker and the metrics need these three.
    ROCKETMQ_NAMESRV: str = env.str("ROCKETMQ_NAMESRV", "")
    ROCKETMQ_CLUSTER: str = env.str("ROCKETMQ_CLUSTER", "DefaultCluster")
    ROCKETMQ_METRICS_URL: str = env.str("ROCKETMQ_METRICS_URL", "")
    SECKILL_TOPIC_PREFIX: str = env.str("SECKILL_TOPIC_PREFIX", "DEV_SECKILL_")

    # --- Identity of buyers ------------------------------------------------------------------
    SECKILL_JWT_ALGORITHM: str = env.str("SECKILL_JWT_ALGORITHM", "HS256")
    SECKILL_JWT_JWKS_URL: str = env.str("SECKILL_JWT_JWKS_URL", "")
    SECKILL_JWT_SECRET: str = (
        env.str("SECKILL_JWT_SECRET", "")
        if SECKILL_JWT_JWKS_URL
        else _required("SECKILL_JWT_SECRET", "HS256 key for buyers' tokens, 32 random characters")
    )
    SECKILL_JWT_ISSUER: str = env.str("SECKILL_JWT_ISSUER", "")
    SECKILL_JWT_AUDIENCE: str = env.str("SECKILL_JWT_AUDIENCE", "")
    SECKILL_ACCESS_TOKEN_S: int = env.int("SECKILL_ACCESS_TOKEN_S", 3600)
    SECKILL_REFRESH_TOKEN_S: int = env.int("SECKILL_REFRESH_TOKEN_S", 7 * 86_400)
    # The demo's own log-in: any user id gets a token. Never on where real buyers are.
    SECKILL_DEMO_LOGIN: bool = env.bool("SECKILL_DEMO_LOGIN", False)

    # --- Gate and admission (milliseconds unless the name says otherwise) ---------------------
    SECKILL_GATE_DEADLINE_MS: int = env.int("SECKILL_GATE_DEADLINE_MS", 100)
    SECKILL_SEND_BUDGET_MS: int = env.int("SECKILL_SEND_BUDGET_MS", 40)
    SECKILL_FIRST_RETRY_MS: int = env.int("SECKILL_FIRST_RETRY_MS", 1_000)
    SECKILL_GATHER_MS: float = env.float("SECKILL_GATHER_MS", 1.0)
    SECKILL_GATHER_MAX: int = env.int("SECKILL_GATHER_MAX", 64)
    SECKILL_ADMISSION_QUEUE: int = env.int("SECKILL_ADMISSION_QUEUE", 1_000)
    SECKILL_ADMISSION_BATCHES: int = env.int("SECKILL_ADMISSION_BATCHES", 2)
    SECKILL_USER_RATE: float = env.float("SECKILL_USER_RATE", 10.0)
    SECKILL_ENTRY_RATE: float = env.float("SECKILL_ENTRY_RATE", 0.0)  # 0 = no global limit
    SECKILL_MAX_OPEN: int = env.int("SECKILL_MAX_OPEN", 20_000)
    SECKILL_MAX_PENDING: int = env.int("SECKILL_MAX_PENDING", 2_000)
    SECKILL_WEB_ROLE: str = env.str("SECKILL_WEB_ROLE", "all")
    SECKILL_WEB_PROCESSES: int = env.int("SECKILL_WEB_PROCESSES", 2)

    # --- Governor (docs/governor.md) ------------------------------------------------------------
    SECKILL_GOVERNOR: str = env.str("SECKILL_GOVERNOR", "on")
    SECKILL_GOVERNOR_TTL_MS: int = env.int("SECKILL_GOVERNOR_TTL_MS", 3_000)
    # New purchases a second of the whole system while no governor is heard of.
    SECKILL_GOVERNOR_STALE_RATE: float = env.float("SECKILL_GOVERNOR_STALE_RATE", 500.0)
    # Order transactions at a time that the database bears (manage.py calibrate_budget).
    SECKILL_SAFE_TRANSACTIONS: int = env.int("SECKILL_SAFE_TRANSACTIONS", 8)
    # Orders a second that the consumers are known to make; 0: the governor learns it.
    SECKILL_DRAIN_RATE: float = env.float("SECKILL_DRAIN_RATE", 0.0)
    # From accepted to order, for 99.9 % of the buyers.
    SECKILL_ORDER_SLO_S: float = env.float("SECKILL_ORDER_SLO_S", 3.0)
    # Bytes a second of WAL that the disk bears; 0: only waits are judged.
    SECKILL_WAL_LIMIT: int = env.int("SECKILL_WAL_LIMIT", 0)
    SECKILL_GOVERNOR_DAYS: int = env.int("SECKILL_GOVERNOR_DAYS", 14)

    # --- Scanner ------------------------------------------------------------------------------
    SECKILL_SCAN_LEASE_MS: int = env.int("SECKILL_SCAN_LEASE_MS", 5_000)
    SECKILL_SCAN_TICK_MS: int = env.int("SECKILL_SCAN_TICK_MS", 100)
    SECKILL_SCAN_BATCH: int = env.int("SECKILL_SCAN_BATCH", 256)
    SECKILL_SWEEP_AGES_S: list[int] = env.list("SECKILL_SWEEP_AGES_S", [10, 40, 160], subcast=int)
    SECKILL_RELEASE_OVERDUE_S: int = env.int("SECKILL_RELEASE_OVERDUE_S", 30)

    # --- Consumers and sender -----------------------------------------------------------------
    SECKILL_INVISIBLE_S: int = env.int("SECKILL_INVISIBLE_S", 15)
    SECKILL_MIN_INVISIBLE_LEFT_S: int = env.int("SECKILL_MIN_INVISIBLE_LEFT_S", 7)
    SECKILL_LONG_POLL_S: int = env.int("SECKILL_LONG_POLL_S", 5)
    SECKILL_POLLERS: int = env.int("SECKILL_POLLERS", 2)
    # Loops of a group in one process: at work while nobody governs, and the most a governor gets.
    SECKILL_CONSUMER_WORKERS: int = env.int("SECKILL_CONSUMER_WORKERS", 1)
    SECKILL_CONSUMER_WORKERS_MAX: int = env.int("SECKILL_CONSUMER_WORKERS_MAX", 2)
    SECKILL_BATCH_MAX: int = env.int("SECKILL_BATCH_MAX", 128)
    SECKILL_STATEMENT_TIMEOUT_MS: int = env.int("SECKILL_STATEMENT_TIMEOUT_MS", 5_000)
    SECKILL_LOCK_TIMEOUT_MS: int = env.int("SECKILL_LOCK_TIMEOUT_MS", 2_000)
    SECKILL_ACK_TIMEOUT_MS: int = env.int("SECKILL_ACK_TIMEOUT_MS", 3_000)
    SECKILL_PUBLISH_TIMEOUT_MS: int = env.int("SECKILL_PUBLISH_TIMEOUT_MS", 3_000)
    # In a rush (so many events a second) events wait for its end, no longer than this.
    SECKILL_RUSH_RATE: int = env.int("SECKILL_RUSH_RATE", 200)
    SECKILL_EVENT_WAIT_S: float = env.float("SECKILL_EVENT_WAIT_S", 15.0)
    SECKILL_OUTBOX_LEASE_S: int = env.int("SECKILL_OUTBOX_LEASE_S", 15)
    SECKILL_SIGTERM_GRACE_S: int = env.int("SECKILL_SIGTERM_GRACE_S", 10)
    SECKILL_WATCHDOG_S: int = env.int("SECKILL_WATCHDOG_S", 60)
    SECKILL_BUILD: int = env.int("SECKILL_BUILD", 1)
    SECKILL_METRICS_PORT: int = env.int("SECKILL_METRICS_PORT", 0)  # 0 = no own port
    if env.str("SECKILL_METRICS", "on") == "off":  # bin/bench observability-cost
        count_nothing()
    SECKILL_METRICS_HOST: str = env.str("SECKILL_METRICS_HOST", "127.0.0.1")
    SECKILL_HEARTBEAT_DIR: str = env.str("SECKILL_HEARTBEAT_DIR", "")

    # --- Replays of dead messages ---------------------------------------------------------------
    SECKILL_PLAN_SALE_S: int = env.int("SECKILL_PLAN_SALE_S", 900)  # a plan's life during a sale
    SECKILL_PLAN_QUIET_S: int = env.int("SECKILL_PLAN_QUIET_S", 7_200)
    # A replay that was published and has no outcome for so long is sent once more.
    SECKILL_REPLAY_OUTCOME_S: int = env.int("SECKILL_REPLAY_OUTCOME_S", 60)
    # Beyond these a batch pauses by itself.
    SECKILL_REPLAY_MAX_TX_P95_S: float = env.float("SECKILL_REPLAY_MAX_TX_P95_S", 1.0)
    SECKILL_REPLAY_MAX_LAG_S: float = env.float("SECKILL_REPLAY_MAX_LAG_S", 5.0)

    # --- Payments -----------------------------------------------------------------------------
    # name=dotted path of a function that returns the provider; the first is for new payments.
    SECKILL_PAYMENT_PROVIDERS: dict[str, str] = _pairs(
        "SECKILL_PAYMENT_PROVIDERS", {"sandbox": "orders.payments.sandbox.configured"}
    )
    # The sandbox's. Empty: nobody can pay; everything else works.
    PAYMENT_PROVIDER_URL: str = env.str("PAYMENT_PROVIDER_URL", "")
    PAYMENT_PROVIDER_KEY: str = env.str("PAYMENT_PROVIDER_KEY", "")
    SECKILL_WEBHOOK_SECRET: str = env.str("SECKILL_WEBHOOK_SECRET", "")
    # Where the provider shall send its webhooks; empty leaves that to its own configuration.
    PAYMENT_NOTIFY_URL: str = env.str("PAYMENT_NOTIFY_URL", "")
    SECKILL_PAYMENT_DEADLINE_MS: int = env.int("SECKILL_PAYMENT_DEADLINE_MS", 3_000)
    # The provider's own word: how long after a send its NOT_FOUND says nothing.
    SECKILL_PAYMENT_NOT_FOUND_WINDOW_S: int = env.int("SECKILL_PAYMENT_NOT_FOUND_WINDOW_S", 900)
    # Late payers: how long their money waits for them to win a unit again; 0 refunds at once.
    SECKILL_READMIT_S: int = env.int("SECKILL_READMIT_S", 0)
    SECKILL_WEBHOOK_TOLERANCE_S: int = env.int("SECKILL_WEBHOOK_TOLERANCE_S", 300)
    SECKILL_WEBHOOK_RETRY_S: int = env.int("SECKILL_WEBHOOK_RETRY_S", 10)
    SECKILL_WEBHOOK_TICKET_S: int = env.int("SECKILL_WEBHOOK_TICKET_S", 86_400)

    # Dotted path of a callable (user_id=, activity_id=, answer=) → bool, asked when a purchase
    # token is issued in a sale that requires a captcha.
    SECKILL_CAPTCHA: str = env.str("SECKILL_CAPTCHA", "")

    # --- Mail to buyers -----------------------------------------------------------------------
    # Empty: mails are queued and not sent. Else a dotted path of a Django mail backend.
    _mail_backend: str = env.str("EMAIL_BACKEND", "")
    SECKILL_MAIL: bool = bool(_mail_backend)
    EMAIL_BACKEND: str = _mail_backend or "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST: str = env.str("EMAIL_HOST", "localhost")
    EMAIL_PORT: int = env.int("EMAIL_PORT", 25)
    EMAIL_HOST_USER: str = env.str("EMAIL_HOST_USER", "")
    EMAIL_HOST_PASSWORD: str = env.str("EMAIL_HOST_PASSWORD", "")
    EMAIL_USE_TLS: bool = env.bool("EMAIL_USE_TLS", False)
    EMAIL_TIMEOUT: int = env.int("EMAIL_TIMEOUT", 10)
    EMAIL_FILE_PATH: str = env.str("EMAIL_FILE_PATH", "")
    DEFAULT_FROM_EMAIL: str = env.str("DEFAULT_FROM_EMAIL", "orders@localhost")
    # Buyers whose id is no address get theirs at this domain; empty: they get no mail.
    SECKILL_MAIL_DOMAIN: str = env.str("SECKILL_MAIL_DOMAIN", "")
    # Who is told of new tickets and broken promises of the DLQ console.
    SECKILL_ONCALL_MAIL: list[str] = env.list("SECKILL_ONCALL_MAIL", [])

    # --- Retention ------------------------------------------------------------------------------
    SECKILL_INBOX_DAYS: int = env.int("SECKILL_INBOX_DAYS", 45)
    SECKILL_OUTBOX_DAYS: int = env.int("SECKILL_OUTBOX_DAYS", 7)
    SECKILL_ARCHIVE_DAYS: int = env.int("SECKILL_ARCHIVE_DAYS", 7)
    # Where days of the event archive are exported to before they are dropped; empty: all are kept.
    SECKILL_ARCHIVE_DIR: str = env.str("SECKILL_ARCHIVE_DIR", "")
    SECKILL_PARTITION_DAYS_AHEAD: int = env.int("SECKILL_PARTITION_DAYS_AHEAD", 14)

    STATIC_ROOT: Path = env.path("SECKILL_STATIC_ROOT", BASE_DIR / "staticfiles")
    SECKILL_FAULTPOINTS_ALLOWED: bool = env.bool("SECKILL_FAULTPOINTS_ALLOWED", False)

    LOG_LEVEL = _one_of("SECKILL_LOG_LEVEL", "INFO", "DEBUG", "WARNING", "ERROR", "CRITICAL")
    LOG_FORMAT = _one_of("SECKILL_LOG_FORMAT", "json", "console")
    MASK_USER_IDS: bool = env.bool("SECKILL_MASK_USER_IDS", False)

    # --- Traces -------------------------------------------------------------------------------
    # off, or otlp: to OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry.
    SECKILL_TRACES: str = env.str("SECKILL_TRACES", "off")
    SECKILL_TRACE_RATIO: float = env.float("SECKILL_TRACE_RATIO", 0.01)  # share of the purchases
    SECKILL_ROLE: str = env.str("SECKILL_ROLE", "seckill")
except EnvError as error:
    sys.stderr.write(f"seckill: {error}\n")
    raise SystemExit(78) from None

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_prometheus",
    "django_structlog",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "inventory",
    "messaging",
    "orders",
    "dlq_admin",
    "seckill",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "seckill.urls"
ASGI_APPLICATION = "seckill.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        **_database,
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
        "TEST": {"NAME": _test_database},
        "OPTIONS": {
            **_database.get("OPTIONS", {}),  # of the URL: sslmode, target_session_attrs
            "connect_timeout": 3,
            "keepalives": 1,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 5_000,
            "application_name": SECKILL_ROLE,
            "server_side_binding": True,
            "prepare_threshold": 1,
            "options": (
                "-c idle_in_transaction_session_timeout=10s"
                f" -c statement_timeout={_session_statement_timeout_ms}"
            ),
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "seckill-cache",
    }
    if CACHE_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
SESSION_ENGINE = "django.contrib.sessions.backends.cached_db"

CELERY_TASK_ALWAYS_EAGER = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
# Finders serve the admin's files without a collectstatic; production collects and hashes them.
WHITENOISE_USE_FINDERS = True

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["seckill.api.authentication.BuyerTokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "seckill.api.problems.problem_response",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "seckill",
    "DESCRIPTION": "Flash-sale orders: reserve, follow the reservation, pay or cancel the order.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "seckill.api.schema.add_async_endpoints",
    ],
    "ENUM_NAME_OVERRIDES": {
        "OrderStatusEnum": "orders.states.OrderStatus",
        "PaymentAttemptStatusEnum": "orders.payments.states.AttemptStatus",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

SESSION_COOKIE_SECURE = SECURE_COOKIES
CSRF_COOKIE_SECURE = SECURE_COOKIES
SECURE_SSL_REDIRECT = SECURE_COOKIES
SECURE_REDIRECT_EXEMPT = [r"^readyz$", r"^metrics$"]  # asked from inside, by HTTP
SECURE_HSTS_SECONDS = 31_536_000 if SECURE_COOKIES else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_COOKIES
SECURE_HSTS_PRELOAD = SECURE_COOKIES
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE_COOKIES else None
X_FRAME_OPTIONS = "DENY"

LOGGING_CONFIG = None
logging_config(level=LOG_LEVEL, fmt=LOG_FORMAT, pseudonym_key=SECRET_KEY if MASK_USER_IDS else "")
