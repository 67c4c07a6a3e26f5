"""Copies of errors: alike in everything that is seen, apart in everything that raising changes."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from ephemeral._error_copies import copy_error, traceback_of_body


class OrderError(Exception):
    """Its arguments are not what it is called with."""

    def __init__(self, order: int, *, reason: str) -> None:
        super().__init__(f"order {order}: {reason}")
        self.order = order


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SlottedError(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class TwoAtOnceError(KeyError, ValueError):
    """Of two built-in kinds."""


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def undecodable() -> UnicodeDecodeError:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    return caught.value


ERRORS = [
    ValueError("plain", 7),
    KeyError("key"),
    OSError(2, "No such file", "name"),
    FileNotFoundError(2, "No such file"),
    undecodable(),
    OrderError(7, reason="sold out"),
    FrozenError(7),
    TwoAtOnceError("x"),
    SystemExit(3),
    StopIteration("value"),
    ExceptionGroup("several", [ValueError("one"), ExceptionGroup("inner", [OrderError(1, reason="x")])]),
    BaseExceptionGroup("several", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copy_looks_like_its_original(error: BaseException) -> None:
    error = raised(error)
    error.add_note("a note") if not isinstance(error, FrozenError) else None
    twin = copy_error(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert (repr(twin), str(twin), vars(twin)) == (repr(error), str(error), vars(error))
    assert twin.__traceback__ is error.__traceback__
    for name in ("errno", "filename", "reason", "start", "code", "value"):
        assert getattr(twin, name, None) == getattr(error, name, None)


def everything_in(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    members: tuple[Any, ...] = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    linked = [error.__cause__, error.__context__, *members]
    return [error, *(one for other in linked for one in everything_in(other))]


def test_what_led_to_it_is_copied_as_well() -> None:
    cause, context, member = raised(KeyError("cause")), raised(OSError("context")), raised(ValueError("member"))
    member.__context__ = raised(TypeError("of the member"))
    error = raised(ExceptionGroup("group", [member, ValueError("never raised")]))  # type: ignore[list-item]
    error.__cause__, error.__context__ = cause, context
    originals, copies = everything_in(error), everything_in(copy_error(error))
    assert [repr(one) for one in copies] == [repr(one) for one in originals]
    assert not {id(one) for one in copies} & {id(one) for one in originals}
    assert [one.__suppress_context__ for one in copies] == [one.__suppress_context__ for one in originals]
    for one in copies:
        one.with_traceback(None)
    assert all(one.__traceback__ is not None for one in (error, cause, context, member))


def test_errors_in_a_circle_are_copied_in_a_circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    twin = copy_error(first)
    assert repr(twin.__cause__) == repr(second)
    assert twin.__cause__ is not None
    assert twin.__cause__.__cause__ is twin


def test_one_that_cannot_be_copied_is_returned_itself() -> None:
    error = SlottedError(7)
    assert copy_error(error) is error
    outer = ValueError("because of it")
    outer.__cause__ = error
    assert copy_error(outer) is outer


def test_no_code_of_the_errors_class_runs() -> None:
    class CountedError(Exception):
        made = 0

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            type(self).made += 1

        def __reduce__(self) -> Any:
            raise AssertionError("it was asked how to be copied")

    assert copy_error(CountedError("once")).args == ("once",)
    assert CountedError.made == 1


def test_a_traceback_begins_with_the_body() -> None:
    def body() -> None:
        raise ValueError("the body's")

    ours: dict[str, Any] = {"__name__": "ephemeral._made_up", "body": body}
    exec("def worker():\n    step()\ndef step():\n    body()\ndef alone():\n    raise KeyError", ours)

    def names_for(function: Any) -> list[str]:
        with pytest.raises((ValueError, KeyError)) as caught:
            function()
        assert caught.value.__traceback__ is not None
        caught.value.with_traceback(caught.value.__traceback__.tb_next)  # without this test's own frame
        return [frame.name for frame in traceback.extract_tb(traceback_of_body(caught.value))]

    assert names_for(ours["worker"]) == ["body"]
    assert names_for(ours["alone"]) == ["alone"], "what the library raises itself keeps its last frame"
    assert traceback_of_body(ValueError("never raised")) is None
