"""What was tried becomes a table, and the table the place that its document has for it."""

from __future__ import annotations

from .faults.tables import splice, tables_of

REDIS = {"server": "Redis 7.0.15", "redis_py": "8.1.0", "python": "3.11.7", "seconds": 1200}


def found(name, *tried, failed=0):
    outcomes = {"passed": len(tried) - failed, "failed": failed, "skipped": 0}
    return {**REDIS, "name": name, "about": f"the {name} one", **outcomes, "tried": list(tried)}


def tried(what, outcome="passed", area="Network", **figures):
    return {"area": area, "what": what, "outcome": outcome, **figures}


def test_a_table_has_a_line_for_each_thing_and_says_how_it_ended_in_each_run():
    tables = tables_of(
        [
            found("one", tried("slow", raised=1200), tried("cut", raised=5, note="a|b")),
            found("two", tried("slow", "failed", raised=7), failed=1),
        ]
    )
    assert tables["Network"].splitlines() == [
        "| what | raised | note | one: Redis 7.0.15, redis-py 8.1.0 | two: Redis 7.0.15, redis-py 8.1.0 |",
        "| --- | --- | --- | --- | --- |",
        "| slow | 1 200 |  | passed | failed |",
        "| cut | 5 | a\\|b | passed | not tried |",
    ]
    assert tables["runs"].splitlines()[2:] == [
        "| one | the one one | Redis 7.0.15 | 8.1.0 | 3.11.7 | 2 | 0 | 0 | 1 200 |",
        "| two | the two one | Redis 7.0.15 | 8.1.0 | 3.11.7 | 0 | 1 | 0 | 1 200 |",
    ]


def test_what_one_of_several_tests_failed_at_has_failed():
    (run,) = [
        found("one", tried("slow", raised=1), tried("slow", "failed", raised=2), tried("slow", raised=3), failed=1)
    ]
    assert tables_of([run])["Network"].splitlines()[2] == "| slow | 1 | failed |"


def test_tables_go_between_their_marks_and_those_of_what_was_not_tried_stay(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- tried: Network -->\nold\n<!-- /tried -->\nb\n<!-- tried: Gone -->\nold\n<!-- /tried -->\n",
        encoding="utf-8",
    )
    for _ in range(2):
        assert splice(page, {"Network": "new"}) == ["Network"]
        assert page.read_text(encoding="utf-8") == (
            "a\n<!-- tried: Network -->\nnew\n<!-- /tried -->\nb\n<!-- tried: Gone -->\nold\n<!-- /tried -->\n"
        )
