"""`manage.py run_scanner` as people call it."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from orders.scan import runner
from tests.fixtures.sales import make_overdue, open_sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_client")]


def test_once_runs_the_jobs_that_were_asked_for():
    sale = open_sale()
    reservation = sale.reserve("ann")
    sale.deliver(reservation)
    make_overdue(reservation)
    out = StringIO()

    call_command("run_scanner", "--once", "--job", "overdue", "--job", "release", stdout=out)

    assert out.getvalue().split() == ["overdue:", "1", "release:", "0"]
    assert sale.order_status(reservation) == "CANCELED"


def test_once_runs_all_jobs():
    out = StringIO()
    call_command("run_scanner", "--once", stdout=out)
    assert {line.split(":")[0] for line in out.getvalue().splitlines()} == set(runner.JOBS)


def test_an_unknown_job_is_a_clear_error():
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("run_scanner", "--job", "nothing")
