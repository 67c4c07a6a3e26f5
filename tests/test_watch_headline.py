"""What somebody reads at 3 a.m.: each trouble in one sentence, the worst first."""

from __future__ import annotations

import pytest

from ephemeral_redis.watch.headline import Clock, Due, Name, Span, headline

from .dashboard_kit import NOW, WHO, fleet, group, outage, rung, worker


def words(sentence):
    """Write a sentence as a page would at NOW."""

    def write(part):
        match part:
            case str():
                return part
            case Name(text):
                return text
            case Clock(at):
                return f"@{at - NOW:+.0f}"
            case Span(at):
                return f"{NOW - at:.0f} s"
            case Due(at):
                return f"in {at - NOW:.0f} s"

    return "".join(map(write, sentence.parts)).removesuffix(".")


def told(picture):
    return [(sentence.level, words(sentence)) for sentence in headline(picture)]


def since(seconds):
    return {"since": NOW - seconds, "epoch": 5, "by": WHO["api-2"]}


def test_who_is_woken_learns_what_is_down_since_when_who_noticed_where_work_goes_and_what_is_done() -> None:
    assert told(outage()) == [
        ("down", "pri1 is down since @-251 (251 s), noticed by api-2: 3 workers use pri2, 340 wait; next probe in 4 s")
    ]


CASES = {
    "all is well": (
        fleet(group(rung(1), rung(2), active=4, pending=1)),
        [("good", "All 2 rungs are up: 3 workers, 4 running, 1 waiting")],
    ),
    "one rung": (fleet(group(rung(1))), [("good", "The one rung is up: 3 workers, 0 running, 0 waiting")]),
    "nothing yet": (fleet(group()), [("good", "No ladder is known yet")]),
    "who probes": (
        fleet(
            group(
                rung(1, "probing", **since(9), prober=WHO["api-3"], probe_until=NOW + 2), rung(2), workers=1, pending=1
            )
        ),
        [
            (
                "down",
                "pri1 is down since @-9 (9 s), noticed by api-2: 1 worker uses pri2, 1 waits; api-3 probes pri1 now",
            )
        ],
    ),
    "nobody is healthy": (
        fleet(group(rung(1, "down", **since(60), next_probe=NOW + 1), rung(2, "down", **since(5)), pending=1200)),
        [
            (
                "down",
                (
                    "pri1 is down since @-60 (60 s), noticed by api-2 and pri2 is down since @-5 (5 s), "
                    "noticed by api-2: nobody takes work, 1,200 wait; next probe in 1 s"
                ),
            )
        ],
    ),
    "taken out by hand, and another one has the work": (
        fleet(group(rung(1, "isolated", **since(7200)), rung(2))),
        [
            (
                "warning",
                (
                    "pri1 is taken out by hand since @-7200 (7200 s) through api-2: 3 workers use pri2, 0 wait; "
                    "not probed before it is reset"
                ),
            )
        ],
    ),
    "taken out by hand, and nobody has the work": (
        fleet(group(rung(1, "isolated", **since(7200)))),
        [
            (
                "down",
                (
                    "pri1 is taken out by hand since @-7200 (7200 s) through api-2: nobody takes work, 0 wait; "
                    "not probed before it is reset"
                ),
            )
        ],
    ),
    "a spare is down": (
        fleet(group(rung(1), rung(2, "down", **since(3), next_probe=NOW + 4))),
        [
            (
                "warning",
                (
                    "pri2 is down since @-3 (3 s), noticed by api-2: not needed now, "
                    "pri1 takes the work; next probe in 4 s"
                ),
            )
        ],
    ),
    "one sees what the fleet does not": (
        fleet(group(rung(1, down_alone=(WHO["api-1"],)), rung(2))),
        [("warning", "api-1 alone holds pri1 for down; the fleet does not")],
    ),
    "a worker without its bus": (
        fleet(workers=(worker("api-1", is_degraded=True), worker("api-2"))),
        [("warning", "api-1 cannot reach the bus and goes on alone")],
    ),
    "many workers without their bus": (
        fleet(workers=tuple(worker(f"w{number}", is_degraded=True) for number in range(9))),
        [("warning", "w0, w1, w2 and 6 more cannot reach the bus and go on alone")],
    ),
    "a worker that is not heard": (
        fleet(workers=(worker("api-1", told=NOW - 7), worker("api-2"))),
        [("warning", "Nothing was heard lately of api-1")],
    ),
    "nobody can be heard while the bus is away": (
        fleet(workers=(worker("api-1", told=NOW - 15),), problem="refused", read_at=NOW - 14),
        [
            (
                "down",
                (
                    "The bus cannot be read since @-14 (14 s): refused. Below is what was seen last; "
                    "workers go on by what each sees"
                ),
            )
        ],
    ),
    "somebody who has left": (
        fleet(group(rung(1, "down", since=NOW - 1, by="feedfacefeedface"), rung(2), workers=0)),
        [
            (
                "down",
                (
                    "pri1 is down since @-1 (1 s), noticed by feedfacefeedface: work goes to pri2, 0 wait; "
                    "no probe is due"
                ),
            )
        ],
    ),
    "the bus is away": (
        fleet(problem="ConnectionError", read_at=NOW - 14),
        [
            (
                "down",
                (
                    "The bus cannot be read since @-14 (14 s): ConnectionError. Below is what was seen last; "
                    "workers go on by what each sees"
                ),
            )
        ],
    ),
    "the bus was never there": (
        fleet(problem="ConnectionError", read_at=0.0, groups=(), workers=()),
        [("down", "The bus cannot be read: ConnectionError. Nothing was seen of it so far")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_trouble_has_its_sentence(case: str) -> None:
    picture, expected = CASES[case]
    assert told(picture) == expected


def test_the_worst_comes_first() -> None:
    spare = group(rung(1, group="a"), rung(2, "down", group="a", **since(9)), name="a")
    lost = group(rung(1, "down", group="b", **since(5)), name="b")
    picture = fleet(spare, lost, workers=(worker("api-1", is_degraded=True),))
    assert [sentence.level for sentence in headline(picture)] == ["down", "warning", "warning"]
    assert told(picture)[0][1].startswith("b.pri1 is down")


def test_names_are_kept_apart_from_words() -> None:
    hostile = "\u202e<img src=x>"
    picture = fleet(group(rung(1, "down", **since(5)), rung(2)), workers=(worker("api-2", name=hostile),))
    [sentence] = headline(picture)
    assert Name(hostile) in sentence.parts
    assert not any(isinstance(part, str) and "<" in part for part in sentence.parts)
    assert {"name": hostile} in sentence.as_json()["parts"]
