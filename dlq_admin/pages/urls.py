"""Addresses of the console, below /admin/dlq/."""

from django.urls import path

from dlq_admin.pages import audit, batches, browsers, inbox, me, messages, search, ticket

app_name = "dlq"

urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("tickets/<int:ticket_id>/", ticket.ticket, name="ticket"),
    path("tickets/<int:ticket_id>/check/", ticket.check_invariants, name="check-invariants"),
    path("tickets/<int:ticket_id>/<str:name>/", ticket.act, name="ticket-act"),
    path("messages/<int:message_pk>/", messages.message, name="message"),
    path("messages/<int:message_pk>/reveal/", messages.reveal, name="reveal"),
    path("messages/<int:message_pk>/edit/", messages.edit, name="edit"),
    path("messages/<int:message_pk>/dry-run/", messages.dry_run, name="dry-run"),
    path("approvals/", batches.approvals, name="approvals"),
    path("batches/", batches.batches, name="batches"),
    path("batches/<int:batch_id>/", batches.batch, name="batch"),
    path("batches/<int:batch_id>/reveal/", batches.reveal, name="batch-reveal"),
    path("batches/<int:batch_id>/<str:name>/", batches.act, name="batch-act"),
    path("quarantine/", browsers.quarantine, name="quarantine"),
    path("outbox/", browsers.outbox, name="outbox"),
    path("inbox-rows/", browsers.inbox_rows, name="inbox_rows"),
    path("audit/", audit.audit, name="audit"),
    path("audit/verify/", audit.verify_now, name="audit-verify"),
    path("audit/export/", audit.export, name="audit-export"),
    path("search/", search.search, name="search"),
    path("me/", me.me, name="me"),
]
