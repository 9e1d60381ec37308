"""Asking a process from an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ratchet.research.measurement.inspection import Dialogue

# Answers each line with two; some lines take long, end it, or are swallowed.
PARROT = """
import sys, time
for line in sys.stdin:
    word = line.strip()
    if word == "die": sys.exit(1)
    if word.startswith("slow"): time.sleep(0.3)
    if word == "hang": time.sleep(3600)
    if word == "more":
        sys.stdout.write("more one\\nmore two\\nmore three\\n"); sys.stdout.flush()
        continue
    sys.stdout.write(f"{word} one\\n"); sys.stdout.flush()
    sys.stdout.write(f"{word} two\\n"); sys.stdout.flush()
"""


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PARROT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@pytest.fixture
def parrot() -> Iterator[Dialogue]:
    dialogue = Dialogue(start, lines=2)
    yield dialogue
    dialogue.close()


def told(word: str) -> list[bytes]:
    return [f"{word} one".encode(), f"{word} two".encode()]


def test_everyone_gets_their_own_answer(parrot: Dialogue) -> None:
    async def scene() -> None:
        words = ["slow-first", *map(str, range(50))]
        answers = await asyncio.gather(*(parrot.ask(f"{word}\n".encode()) for word in words))
        assert answers == [told(word) for word in words]

    asyncio.run(scene())
    asyncio.run(scene())


def test_whoever_is_cancelled_shifts_nobody_elses_answer(parrot: Dialogue) -> None:
    async def scene() -> None:
        gone = asyncio.create_task(parrot.ask(b"slow\n"))
        other = asyncio.create_task(parrot.ask(b"other\n"))
        await asyncio.sleep(0.01)
        gone.cancel()
        assert await other == told("other")

    asyncio.run(scene())


def test_when_it_dies_all_who_wait_are_told_and_the_next_question_starts_another(parrot: Dialogue) -> None:
    async def scene() -> None:
        assert await asyncio.gather(parrot.ask(b"die\n"), parrot.ask(b"behind it\n")) == [[], []]
        assert await parrot.ask(b"again\n") == told("again")

    asyncio.run(scene())


def test_more_than_a_pipe_holds_is_not_said(parrot: Dialogue) -> None:
    async def scene() -> None:
        first = asyncio.create_task(parrot.ask(b"hang\n"))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(parrot.ask(b"x" * 999 + b"\n")) for _ in range(32)]
        await asyncio.sleep(0)
        assert await parrot.ask(b"y" * 999 + b"\n") is None
        parrot.close()
        assert await asyncio.gather(first, *waiting) == [[]] * 33

    asyncio.run(scene())


def test_it_serves_one_event_loop_at_a_time(parrot: Dialogue) -> None:
    asked, found = threading.Event(), []

    async def hold() -> None:
        answer = asyncio.create_task(parrot.ask(b"slow\n"))
        await asyncio.sleep(0)
        asked.set()
        assert await answer == told("slow")

    async def come() -> None:
        found.append(await parrot.ask(b"me too\n"))

    holder = threading.Thread(target=lambda: asyncio.run(hold()))
    holder.start()
    assert asked.wait(30)
    asyncio.run(come())
    holder.join()
    asyncio.run(come())
    assert found == [None, told("me too")]


def test_an_event_loop_that_ended_with_a_question_open_leaves_it_usable(parrot: Dialogue) -> None:
    async def leave() -> None:
        asyncio.get_running_loop().create_task(parrot.ask(b"hang\n"))
        await asyncio.sleep(0.01)

    async def come() -> None:
        assert await parrot.ask(b"after\n") == told("after")

    asyncio.run(leave())
    asyncio.run(come())


def test_one_that_does_not_answer_is_ended() -> None:
    dialogue = Dialogue(start, lines=2, seconds=0.3)

    async def scene() -> None:
        assert await asyncio.gather(dialogue.ask(b"hang\n"), dialogue.ask(b"behind it\n")) == [[], []]
        assert await dialogue.ask(b"again\n") == told("again")

    asyncio.run(scene())
    dialogue.close()


def test_one_that_says_more_than_it_was_asked_is_out_of_step_and_ended(parrot: Dialogue) -> None:
    async def scene() -> None:
        for _ in range(3):
            assert await parrot.ask(b"more\n") == told("more")
            assert await parrot.ask(b"word\n") == told("word")

    asyncio.run(scene())


def test_what_cannot_be_started_is_not_asked() -> None:
    async def scene() -> None:
        assert await Dialogue(lambda: subprocess.Popen(["/absent"]), lines=1).ask(b"word\n") is None

    asyncio.run(scene())


def test_it_may_be_closed_from_another_thread_while_it_is_asked(parrot: Dialogue) -> None:
    async def scene() -> None:
        answer = asyncio.create_task(parrot.ask(b"hang\n"))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(parrot.close)
        assert await answer == []
        assert await parrot.ask(b"again\n") == told("again")

    asyncio.run(scene())


def test_a_fork_asks_a_process_of_its_own_and_leaves_its_parents_alone(parrot: Dialogue) -> None:
    async def ask(word: str) -> list[bytes] | None:
        return await parrot.ask(f"{word}\n".encode())

    async def scene() -> int:
        asked = asyncio.create_task(ask("slow"))
        await asyncio.sleep(0.05)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio._set_running_loop(None)
                code = 0 if asyncio.run(ask("mine")) == told("mine") else 2
                parrot.close()
            finally:
                os._exit(code)
        assert await asked == told("slow")
        return child

    child = asyncio.run(scene())
    assert os.waitpid(child, 0) == (child, 0)
    assert asyncio.run(ask("after")) == told("after")
