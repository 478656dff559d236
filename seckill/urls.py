"""Every address that Django serves.

The hot endpoint, the streams and `/healthz` are not here: they are in front of Django
(`seckill/web.py`).
"""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from seckill.api import health
from seckill.monitor import views as monitor
from seckill.pages import views as pages
from seckill.password_limit import LimitedAdminLoginForm

admin.site.site_header = "seckill"
admin.site.site_title = "seckill"
admin.site.index_title = "Flash sales"
admin.site.login_form = LimitedAdminLoginForm

urlpatterns = [
    path("", pages.start, name="start"),
    path("activities/<int:activity_id>/", pages.activity, name="activity"),
    path("login/", pages.login, name="login"),
    path("logout/", pages.logout, name="logout"),
    path("api/v1/", include("seckill.api.urls")),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path("admin/preflight/<int:activity_id>/", pages.preflight, name="preflight"),
    path("admin/monitor/", admin.site.admin_view(monitor.monitor), name="monitor"),
    path("admin/monitor/data/", admin.site.admin_view(monitor.data), name="monitor_data"),
    path("admin/monitor/workers/", admin.site.admin_view(monitor.workers), name="monitor_workers"),
    path("admin/dlq/", include("dlq_admin.pages.urls")),
    path("admin/", admin.site.urls),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]

handler400 = "seckill.api.problems.bad_request"
handler404 = "seckill.api.problems.not_found"
handler500 = "seckill.api.problems.server_error"
