"""Asking whether Python files compile, in a process that hostile ones may kill."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, NamedTuple, cast

_PROGRAM = Path(__file__).with_name("compiling.py")


class SyntaxProblem(NamedTuple):
    line: int
    message: str


class Compiler:
    """One process, started when it is first asked and again when it died. Thread-safe."""

    def __init__(self) -> None:
        # Answers carry no names: one question at a time.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def check(self, file: str, source: bytes) -> SyntaxProblem | None:
        """What is wrong with a file. Raises `OSError` if there can be no process to tell."""
        question = json.dumps({"file": file, "bytes": len(source)}).encode() + b"\n" + source
        with self._lock:
            # Somebody may have killed it. Whoever kills two in a row is the file.
            answer = self._ask(question) or self._ask(question)
        if not answer:
            return SyntaxProblem(1, "the compiler did not survive it, or took too long")
        told = json.loads(answer)
        return None if told is None else SyntaxProblem(told["line"], told["message"])

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()

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
            self.close()
            raise
        if not answer.endswith(b"\n"):
            self.close()
            return b""
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
            self._owner = os.getpid()
        return self._process


compiler = Compiler()
"""The one of this process."""
atexit.register(compiler.close)
