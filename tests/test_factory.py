"""Coordinators by name: one each, made when asked for, started and drained together."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ephemeral import (
    CoordinatorFactory,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    UnknownCoordinatorError,
)
from ephemeral.testing import wait_all_blocked

from .work_kit import Gates, balance, cut, cut_everywhere, settle


async def double(item: int) -> int:
    await anyio.sleep(1)
    return item * 2


def factory_of(*names: str, body: Any = double, **options: Any) -> CoordinatorFactory:
    factory = CoordinatorFactory()
    for name in names:
        factory.add_work(name, body, EphemeralOptions(**options))
    return factory


async def test_each_name_gives_one_coordinator_of_its_kind() -> None:
    factory = CoordinatorFactory()
    factory.add_work("mail", double)
    factory.add_keyed("orders", str, double)
    factory.add_result("translations", double)
    kinds = {
        "mail": EphemeralWorkCoordinator,
        "orders": EphemeralKeyedWorkCoordinator,
        "translations": EphemeralResultCoordinator,
    }
    async with factory:
        made = {name: factory.create_coordinator(name) for name in kinds}
        assert {name: type(one) for name, one in made.items()} == kinds
        assert all(factory.create_coordinator(name) is one for name, one in made.items())
        assert await made["translations"].submit(4) == 8
        assert await made["orders"].enqueue(4)
    assert [seen.key for seen in made["orders"].get_completed()] == ["4"]


async def test_one_is_made_when_it_is_first_asked_for() -> None:
    factory = factory_of("mail", "sms")
    assert repr(factory) == "<CoordinatorFactory of 2 coordinators, made so far: none>"
    async with factory:
        factory.create_coordinator("sms")
        assert repr(factory) == "<CoordinatorFactory of 2 coordinators, made so far: 'sms'>"


async def test_a_name_is_also_the_coordinators_id_unless_it_has_one() -> None:
    factory = factory_of("mail")
    factory.add_work("sms", double, EphemeralOptions(coordinator_id="texts"))
    assert repr(factory.create_coordinator("mail")).startswith("<EphemeralWorkCoordinator 'mail' ")
    assert repr(factory.create_coordinator("sms")).startswith("<EphemeralWorkCoordinator 'texts' ")


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    factory = factory_of("sms", "mail")
    with pytest.raises(UnknownCoordinatorError, match=r"'orders'; added so far: 'mail', 'sms'") as caught:
        factory.create_coordinator("orders")
    assert (caught.value.name, caught.value.known) == ("orders", ("mail", "sms"))


def test_a_name_added_twice_is_refused_whatever_its_kind() -> None:
    factory = factory_of("mail")
    for add in (factory.add_work, factory.add_result):
        with pytest.raises(ValueError, match="'mail' has been added"):
            add("mail", double)
    with pytest.raises(ValueError, match="'mail' has been added"):
        factory.add_keyed("mail", str, double)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(ValueError, match="name must be"):
        CoordinatorFactory().add_work(name, double)


def test_what_cannot_be_called_is_refused_when_it_is_added() -> None:
    factory: Any = CoordinatorFactory()
    with pytest.raises(TypeError, match="body"):
        factory.add_result("mail", 7)
    with pytest.raises(TypeError, match="key_selector"):
        factory.add_keyed("orders", None, double)
    with pytest.raises(UnknownCoordinatorError, match="added so far: none"):
        factory.create_coordinator("mail")


# Life


async def test_entering_starts_what_was_made_before_and_items_may_wait_for_it() -> None:
    gates = Gates()
    factory = factory_of("mail", "sms", body=gates)
    mail, sms = factory.create_coordinator("mail"), factory.create_coordinator("sms")
    await mail.enqueue("a letter")
    await settle(mail)
    assert gates.started == []
    async with factory:
        assert await sms.enqueue("a text")
        await settle(mail)
        assert sorted(gates.started) == ["a letter", "a text"]
        gates.open()
    assert mail.is_drained
    assert sms.is_drained


@pytest.mark.real_time
async def test_once_the_block_is_entered_other_threads_may_enqueue() -> None:
    factory = factory_of("mail", body=Gates().__call__)
    mail = factory.create_coordinator("mail")
    async with factory:
        assert await anyio.to_thread.run_sync(mail.enqueue_threadsafe, 1)
        mail.cancel()


async def test_what_is_made_inside_starts_by_itself() -> None:
    async with factory_of("a", "b", "c") as factory:
        made = [factory.create_coordinator(name) for name in "abc"]
        for one in made:
            assert await one.enqueue(1)
        await anyio.sleep(1.5)
        assert [one.total_completed for one in made] == [1, 1, 1]


async def test_leaving_drains_one_after_the_other_so_that_one_may_feed_the_next() -> None:
    factory = CoordinatorFactory()
    ended: list[str] = []

    async def order(item: int) -> None:
        await anyio.sleep(1)
        assert await factory.create_coordinator("packing").enqueue(item)
        ended.append("order")

    async def pack(item: int) -> None:
        await anyio.sleep(1)
        assert await factory.create_coordinator("mail").enqueue(item)
        ended.append("pack")

    async def send(item: int) -> None:
        await anyio.sleep(1)
        ended.append("send")

    factory.add_work("mail", send)  # the order they are added in says nothing
    factory.add_work("packing", pack)
    factory.add_work("orders", order)
    async with factory:
        await factory.create_coordinator("orders").enqueue_many(range(2))
    assert ended == ["order", "order", "pack", "pack", "send", "send"]


async def test_leaving_by_an_exception_cancels_all_and_it_comes_out_bare() -> None:
    error = KeyError("the user's")
    factory = factory_of("a", "b", body=Gates())
    made = [factory.create_coordinator(name) for name in "ab"]

    async def whole_block() -> None:
        async with factory:
            for one in made:
                await one.enqueue(1)
            await settle(made[0])
            raise error

    with pytest.raises(KeyError) as caught:
        await whole_block()
    assert caught.value is error
    assert [one.total_cancelled for one in made] == [1, 1]
    assert all(one.is_drained for one in made)


async def test_an_order_to_end_from_a_body_cancels_all_and_comes_out_bare() -> None:
    async def body(item: int) -> None:
        await anyio.sleep(item)
        raise KeyboardInterrupt

    factory = factory_of("a", "b", body=body)
    made = [factory.create_coordinator(name) for name in "ab"]

    async def whole_block() -> None:
        async with factory:
            await made[0].enqueue(1)
            await made[1].enqueue(100)
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await whole_block()
    assert (made[0].total_failed, made[1].total_cancelled) == (1, 1)
    assert anyio.current_time() == 1


async def test_a_drain_timeout_bounds_each_of_them() -> None:
    factory = factory_of("a", "b", body=Gates(), drain_timeout=2)
    made = [factory.create_coordinator(name) for name in "ab"]
    async with factory:
        for one in made:
            await one.enqueue(1)
    assert anyio.current_time() == 4
    assert [one.total_cancelled for one in made] == [1, 1]


async def test_a_factory_has_one_block() -> None:
    factory = factory_of("a", "b")
    async with factory:
        first = factory.create_coordinator("a")
    with pytest.raises(RuntimeError, match="started before"):
        await factory.__aenter__()
    assert factory.create_coordinator("a") is first
    with pytest.raises(RuntimeError, match=r"'b' could never run"):
        factory.create_coordinator("b")


async def test_a_block_cut_anywhere_leaves_nothing_running() -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()
        factory = factory_of("a", "b", body=gates)
        made = [factory.create_coordinator(name) for name in "ab"]

        async def whole_block() -> None:
            async with factory:
                for one in made:
                    await one.enqueue(at)
                gates.open()

        reached = await cut(whole_block, at)
        for one in made:
            balance(one)
            assert one.active_count == 0
        assert reached or [one.total_completed for one in made] == [1, 1]
        assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]
        return reached

    assert await cut_everywhere(scenario) > 1


async def test_what_is_made_inside_may_be_waited_for_at_once_and_before_the_block_is_refused() -> None:
    async def double(item: int) -> int:
        return item * 2

    factory = CoordinatorFactory()
    factory.add_result("early", double)
    factory.add_result("late", double)
    with pytest.raises(RuntimeError, match="has not started"):
        await factory.create_coordinator("early").submit(1)
    async with factory:
        assert await factory.create_coordinator("late").submit(1) == 2
        assert await factory.create_coordinator("early").submit(2) == 4


@pytest.mark.parametrize("turns", range(6))
async def test_one_asked_for_while_the_block_ends_runs_what_it_takes_or_is_refused(turns: int) -> None:
    ran: list[int] = []
    took: list[bool] = []

    async def body(item: int) -> None:
        ran.append(item)

    factory = factory_of("first", "late", body=body)

    async def ask() -> None:
        await factory._made["first"].ended.wait()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        with contextlib.suppress(RuntimeError):
            took.append(factory.create_coordinator("late").try_enqueue(1))

    async with anyio.create_task_group() as group, factory:
        factory.create_coordinator("first")
        group.start_soon(ask)
        await wait_all_blocked()
    assert len(ran) == sum(took)


async def test_one_made_just_before_an_exception_leaves_the_block_is_cancelled_too() -> None:
    factory = factory_of("late")

    async def whole_block() -> None:
        async with factory:
            await factory.create_coordinator("late").enqueue(1)
            raise KeyError

    with pytest.raises(KeyError):
        await whole_block()
    late = factory.create_coordinator("late")
    assert (late.pending_count, late.total_cancelled, late.is_drained) == (0, 1, True)


@pytest.mark.parametrize("is_made_inside", [False, True])
async def test_entering_one_by_hand_is_an_error_that_comes_out_bare(is_made_inside: bool) -> None:
    factory = factory_of("mail")
    if not is_made_inside:
        factory.create_coordinator("mail")

    async def whole_block() -> None:
        async with factory, factory.create_coordinator("mail"):
            await anyio.sleep_forever()

    with pytest.raises(RuntimeError, match="'mail' has been started before, maybe by its factory"):
        await whole_block()
    assert anyio.current_time() == 0
