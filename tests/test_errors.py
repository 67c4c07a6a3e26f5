"""Errors say whose fault it is and what to do, and travel between processes."""

from __future__ import annotations

import inspect
import pickle

import anyio
import pytest

import ephemeral
from ephemeral import (
    CoordinatorCompletedError,
    CoordinatorNotCompletedError,
    EphemeralError,
    NoHealthyProcessorError,
    OperationCancelledError,
    ProcessingFailedError,
    UnknownCoordinatorError,
    UnknownOperationError,
    _errors,
)
from ephemeral._bodies import RanOutOfTimeError, StillRunningError

ERRORS = [
    pytest.param(CoordinatorCompletedError("thumbnails"), "enqueue before complete()", id="completed"),
    pytest.param(CoordinatorNotCompletedError("thumbnails"), "call complete() before drain()", id="not completed"),
    pytest.param(OperationCancelledError(17), "enqueue its item again", id="cancelled"),
    pytest.param(UnknownOperationError(17), "pin() it", id="unknown operation"),
    pytest.param(UnknownCoordinatorError("mail", ("orders", "sms")), "'orders', 'sms'", id="unknown coordinator"),
    pytest.param(NoHealthyProcessorError("eu", 1.5), "1970-01-01T00:00:01.500", id="nobody healthy"),
    pytest.param(NoHealthyProcessorError("eu", None), "reset_health()", id="nobody to be probed"),
    pytest.param(ProcessingFailedError("pri1", "widget-1"), "raise an error there", id="said False"),
    pytest.param(_errors.BusUnavailableError("timed out"), "sent when it is back", id="no bus"),
]


@pytest.mark.parametrize(("error", "advice"), ERRORS)
def test_it_says_what_to_do_and_with_which_value(error: EphemeralError, advice: str) -> None:
    assert advice in str(error)
    told = [value for value in vars(error).values() if isinstance(value, str | int)]
    assert told
    assert all(str(value) in str(error) for value in told)


@pytest.mark.parametrize(("error", "advice"), ERRORS)
def test_it_survives_pickle(error: EphemeralError, advice: str) -> None:
    error.add_note("seen on worker 3")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.args, vars(copy), str(copy)) == (error.args, vars(error), str(error))


def test_all_errors_are_tried_here_and_have_one_base() -> None:
    found = {kind for kind in vars(_errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)}
    found -= {EphemeralError}
    assert {type(parameter.values[0]) for parameter in ERRORS} == found
    assert all(issubclass(kind, EphemeralError) for kind in found)
    public = {value for name, value in vars(ephemeral).items() if name.endswith("Error")}
    assert public <= found | {EphemeralError}


def test_a_time_out_kept_in_a_window_survives_pickle_without_its_thread() -> None:
    error = StillRunningError(2.5, anyio.Event())
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is RanOutOfTimeError
    assert "2.5 s" in str(copy)
    assert str(copy) == str(error)
