"""Ctrl-C and SIGTERM cancel what runs and wait until it has closed what it had open."""

from __future__ import annotations

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from ephemeral_redis.cli.interrupt import Interrupted, run_interruptible

pytestmark = pytest.mark.real_time


def test_a_result_is_returned() -> None:
    async def work() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert run_interruptible(work) == 7


def test_an_error_comes_out_bare() -> None:
    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_interruptible(work)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_further_ones_disturb_no_closing(number: int) -> None:
    closed = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(3):
                    os.kill(os.getpid(), signal.SIGINT)
                    await anyio.lowlevel.checkpoint()
            closed.append(True)

    with pytest.raises(Interrupted) as caught:
        run_interruptible(work)
    assert caught.value.number == number
    assert str(caught.value) == f"ended by {signal.Signals(number).name}"
    assert closed == [True]


def test_the_handlers_are_gone_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run_interruptible(anyio.lowlevel.checkpoint)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
