"""Asking whether Python files compile, in a process that hostile ones may kill."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, NamedTuple, cast

from ratchet.research.measuring.dialogue import Dialogue

_PROGRAM = Path(__file__).with_name("compiling.py")


class SyntaxProblem(NamedTuple):
    line: int
    message: str


class Compiler:
    """A process for threads and one for an event loop, started when first asked and again when they died."""

    def __init__(self) -> None:
        # Answers carry no names: one question at a time.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._soon = Dialogue(_start, lines=1)

    def check(self, file: str, source: bytes) -> SyntaxProblem | None:
        """What is wrong with a file. Raises `OSError` if there can be no process to tell."""
        return self._checked(_question(file, source), tries=2)

    async def check_soon(self, file: str, source: bytes) -> SyntaxProblem | None:
        """As `check`, while others in the event loop go on. What gets no answer is asked again in a thread."""
        question = _question(file, source)
        answer = await self._soon.ask(question)
        if answer:
            return _understood(answer[0])
        return await asyncio.to_thread(self._checked, question, tries=2 if answer is None else 1)

    def close(self) -> None:
        self._soon.close()
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()

    def _checked(self, question: bytes, *, tries: int) -> SyntaxProblem | None:
        answer = b""
        with self._lock:
            # Somebody may have killed it. Whoever kills two in a row is the file.
            while not answer and tries:
                answer, tries = self._ask(question), tries - 1
        return _understood(answer)

    def _ask(self, question: bytes) -> bytes:
        """The answer, or nothing if the process died over it."""
        process = self._running()
        try:
            cast(IO[bytes], process.stdin).write(question)
            cast(IO[bytes], process.stdin).flush()
            answer = cast(IO[bytes], process.stdout).readline()
        except BrokenPipeError:
            answer = b""
        except BaseException:
            self._end()
            raise
        if not answer.endswith(b"\n"):
            self._end()
            return b""
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            self._process = _start()
            self._owner = os.getpid()
        return self._process


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _question(file: str, source: bytes) -> bytes:
    return json.dumps({"file": file, "bytes": len(source)}).encode() + b"\n" + source


def _understood(answer: bytes) -> SyntaxProblem | None:
    if not answer:
        return SyntaxProblem(1, "the compiler did not survive it, or took too long")
    told = json.loads(answer)
    return None if told is None else SyntaxProblem(told["line"], told["message"])


compiler = Compiler()
"""The one of this process."""
atexit.register(compiler.close)
