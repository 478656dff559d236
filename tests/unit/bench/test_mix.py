"""Who pays, who cancels, who forgets: decided once for each order; no order is seen twice."""

from collections import Counter

from bench.mix import Intent, Window, intent
from bench.scenarios.steady import wrong_ends


def test_the_shares_are_those_of_the_mix_and_an_order_never_changes_its_mind():
    orders = [f"ord_{n:026d}" for n in range(5_000)]
    found = Counter(map(intent, orders))
    assert abs(found[Intent.PAY] / 5_000 - 0.6) < 0.03
    assert abs(found[Intent.CANCEL] / 5_000 - 0.2) < 0.03
    assert [intent(order) for order in orders] == [intent(order) for order in orders]


def test_an_order_is_new_once_also_when_it_commits_out_of_order():
    window = Window(size=4)
    assert window.new(["b", "d"]) == {"b", "d"}
    assert window.floor == ""
    assert window.new(["b", "c", "d", "e"]) == {"c", "e"}
    assert window.floor == "b"


def test_the_window_moves_up_and_nothing_below_its_floor_comes_again():
    window = Window(size=3)
    window.new(["a", "b", "c"])
    assert window.new(["d", "e"]) == {"d", "e"}
    assert window.floor == "c"
    assert window.new(["d", "e"]) == set()


def test_an_order_that_ends_otherwise_than_its_buyer_wanted_is_counted():
    by_intent = {intent(order): order for order in (f"ord_{n:026d}" for n in range(50))}
    pays, cancels, forgets = (by_intent[kind] for kind in Intent)
    assert wrong_ends([(pays, "PAID"), (cancels, "CANCELED"), (forgets, "CANCELED")]) == {}
    assert wrong_ends([(pays, "CANCELED"), (forgets, "PAID"), (cancels, "CREATED")]) == {
        "PAID wanted, CANCELED": 1,
        "CANCELED wanted, PAID": 1,
        "CANCELED wanted, CREATED": 1,
    }
