"""Copies of exceptions, for one that is remembered and raised as well: raising adds frames, and frames keep items."""

from __future__ import annotations

from types import TracebackType
from typing import Any, cast

from ._operations import with_what_led_to

_THIS_PACKAGE = __name__.partition(".")[0] + "."


def copy_error(error: BaseException) -> BaseException:
    """Return a copy of *error* and of all that led to it, tracebacks included, so that raising one leaves the other.

    No code of the exception's own class runs. An exception that cannot be copied so (it has slots, or an extension
    lays out its memory) is returned itself.
    """
    originals = with_what_led_to(error)
    try:
        copies = _copies_of(originals)
        for one in originals:
            twin = copies[id(one)]
            twin.with_traceback(one.__traceback__)
            # By the base's own method: an exception may be a frozen dataclass.
            BaseException.__setattr__(twin, "__context__", copies.get(id(one.__context__)))
            BaseException.__setattr__(twin, "__cause__", copies.get(id(one.__cause__)))
            BaseException.__setattr__(twin, "__suppress_context__", one.__suppress_context__)
    except (TypeError, AttributeError):
        return error
    return copies[id(error)]


def with_note(error: BaseException, note: str) -> BaseException:
    """Return a copy of *error* that says *note* too; where that cannot be, *error* itself, which then says it once."""
    twin = copy_error(error)
    notes: list[str] = list(getattr(error, "__notes__", ()))
    if note not in notes:
        # By the base's own method, as above; and a list of its own, where the copy has been given the other's.
        BaseException.__setattr__(twin, "__notes__", [*notes, note])
    return twin


def _copies_of(originals: list[BaseException]) -> dict[int, BaseException]:
    copies: dict[int, BaseException] = {}

    def copy(one: BaseException) -> BaseException:
        if id(one) not in copies:
            copies[id(one)] = _made_as(one, members_of(one))
        return copies[id(one)]

    def members_of(one: BaseException) -> list[BaseException] | None:
        if not isinstance(one, BaseExceptionGroup):
            return None
        return [copy(member) for member in cast("BaseExceptionGroup[BaseException]", one).exceptions]

    for one in originals:
        copy(one)
    return copies


def _made_as(one: BaseException, members: list[BaseException] | None) -> BaseException:
    kind = type(one)
    if any(getattr(parent, "__slots__", ()) for parent in kind.__mro__):
        raise TypeError(f"{kind!r} has slots")
    maker: Any = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    # Not args: an OSError keeps its file name elsewhere, and tells here what it would be made of.
    arguments = maker.__reduce__(one)[1]
    if members is not None:
        arguments = (arguments[0], members)
    twin: BaseException = maker.__new__(kind, *arguments)
    maker.__init__(twin, *arguments)
    vars(twin).update(vars(one))
    return twin


def traceback_of_body(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error* from where it left this package's code for the last time, if it did.

    The frames before are those of a worker that lives on and goes to other items.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_THIS_PACKAGE)
