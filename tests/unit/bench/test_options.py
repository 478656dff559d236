"""The command line: what goes together, and what a run of its own is given."""

import pytest

from bench import __main__ as command
from bench.bench import Wish
from bench.scenarios import SCENARIOS


def parse(*words: str):
    options = command._parser().parse_args(words)
    command._check(command._parser(), options)
    return options


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name a scenario"),
        (["accept", "--rate", "5"], "--rate is for steady, memory"),
        (["accept", "--seconds", "-1"], "--seconds must be positive"),
        (["accept", "--connections", "10,-1"], "--connections"),
        (["accept", "--record"], "--record belongs to --quick"),
        (["console", "--quick"], "--quick has accept"),
        (["accept", "--against", "HEAD", "--pairs", "0"], "--pairs"),
        (["accept", "--against", "HEAD", "--connections", "1,2"], "--against takes one"),
        (["nonsense"], "invalid choice"),
    ],
)
def test_what_does_not_go_together_is_said(words, text, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_run_of_its_own_gets_the_same_wish():
    words = ["steady", "--seconds", "7.5", "--rate", "40", "--warm-up", "100"]
    options = parse(*words, "--connections", "10,1000", "--appendfsync", "everysec")
    again = parse("steady", *command._arguments(options, options.connections[1]))
    assert again.connections == [1000]
    assert (again.seconds, again.rate, again.warm_up) == (7.5, 40.0, 100)
    assert again.appendfsync == "everysec"


def test_every_number_is_a_wish_and_is_taken_by_a_scenario():
    fields = set(Wish.__dataclass_fields__)
    for name, (_, _, _, takers) in command._NUMBERS.items():
        assert name.replace("-", "_") in fields
        assert set(takers) <= set(SCENARIOS)


def test_the_page_describes_every_scenario_and_option():
    from bench.runs import ROOT

    page = (ROOT / "docs" / "benchmarks.md").read_text()
    options = [f"--{name}" for name in command._NUMBERS]
    options += ["--against", "--pairs", "--quick", "--record", "--json", "--appendfsync", "plots"]
    assert [name for name in options if name not in page] == []
    assert [name for name in SCENARIOS if f"\n| `{name}` |" not in page] == []
