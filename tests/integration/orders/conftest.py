"""The scanner's jobs that send, with a producer that answers as it is told."""

import pytest

from orders.scan.pending import PendingJob
from orders.scan.resend import Resender
from orders.scan.sweep import SweepJob
from tests.fixtures.sales import FakeProducer


@pytest.fixture
def producer():
    return FakeProducer()


@pytest.fixture
def pending(producer):
    job = PendingJob(resender=Resender(producer))
    yield job
    job.close()


@pytest.fixture
def sweep(producer):
    job = SweepJob(resender=Resender(producer))
    yield job
    job.close()
