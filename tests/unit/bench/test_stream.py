"""A long stream is made of pieces; what they saw becomes one result."""

from bench.loadgen.histogram import Histogram
from bench.stream import Streamed, pieces


def result(*latencies_us: int, **codes: int) -> dict:
    histogram = Histogram()
    for latency_us in latencies_us:
        histogram.add(latency_us)
    counts = {str(bucket): count for bucket, count in histogram.sparse().items()}
    return {"codes": codes, "errors": {"closed": 1}, "pending": 3, "histogram": counts}


def test_pieces_are_a_minute_and_the_rest():
    assert pieces(150) == [60, 60, 30]
    assert pieces(60) == [60]
    assert pieces(5) == [5]


def test_results_of_pieces_add_up():
    found = Streamed()
    found.add(result(10, 20, a=2), ids=["x"], rates=[(1.0, 5.0)], at=0.0)
    found.add(result(30, a=1, b=1), ids=["y"], rates=[(1.0, 6.0)], at=60.0)
    assert found.codes == {"a": 3, "b": 1}
    assert (found.errors, found.pending) == (2, 6)
    assert found.accepted_ids == ["x", "y"]
    assert found.latency.total == 3
    assert found.accepted_per_s == [(1.0, 5.0), (61.0, 6.0)]
