"""Which ports a start takes."""

from __future__ import annotations

import socket

import pytest

from devstack import ports
from devstack.errors import PortTaken, StackError

NOBODY = frozenset[str]()


def test_the_first_start_takes_a_free_block_and_keeps_the_brokers_in_a_row() -> None:
    busy = set(range(15000, 20000))
    chosen, moved = ports.settle(
        known=None, base=None, running=NOBODY, seed="a", free=lambda port: port not in busy
    )
    assert moved == []
    assert not busy & set(chosen.values())
    assert chosen["broker_vip"] == chosen["broker"] - 2
    assert chosen["broker_ha"] == chosen["broker"] + 1


def test_two_run_folders_start_their_search_at_different_places() -> None:
    assert ports.choose(seed="a", free=lambda _: True) != ports.choose(
        seed="b", free=lambda _: True
    )


def test_a_later_start_keeps_its_ports() -> None:
    known = ports.explicit(16000)
    assert ports.settle(known=known, base=None, running=NOBODY, seed="a", free=lambda _: True) == (
        known,
        [],
    )


def test_our_own_running_service_does_not_count_as_a_stranger() -> None:
    known = ports.explicit(16000)
    chosen, moved = ports.settle(
        known=known,
        base=None,
        running=frozenset({"redis"}),
        seed="a",
        free=lambda port: port != known["redis"],
    )
    assert (chosen, moved) == (known, [])


def test_a_taken_broker_port_moves_the_whole_broker_and_nothing_else() -> None:
    known = ports.explicit(16000)
    chosen, moved = ports.settle(
        known=known, base=None, running=NOBODY, seed="a", free=lambda port: port != known["broker"]
    )
    assert moved == ["broker"]
    assert {name for name in known if chosen[name] != known[name]} == set(ports.OWNED["broker"])
    assert chosen["broker_ha"] == chosen["broker"] + 1
    assert len(set(chosen.values())) == len(chosen)


def test_a_taken_explicit_port_is_an_error_that_names_it() -> None:
    with pytest.raises(PortTaken, match=r"port 17001 \(redis\) is taken"):
        ports.settle(
            known=None, base=17000, running=NOBODY, seed="a", free=lambda port: port != 17001
        )


def test_a_base_out_of_range_is_an_error() -> None:
    with pytest.raises(StackError, match="65523"):
        ports.explicit(65530)


def test_is_free_sees_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_stack_from_before_a_service_gets_a_port_for_it() -> None:
    old = {name: port for name, port in ports.explicit(20900).items() if name != "provider"}
    old["redis"] = 31000  # was moved once

    known = ports.completed(old)

    assert known == {**ports.explicit(20900), "redis": 31000}
    assert ports.completed({}) == {}
