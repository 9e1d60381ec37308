"""Lines carry ids, keep secrets, and look the same whoever wrote them."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from ratchet.observe import logs

log = logs.logger("ratchet.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_logger_event_and_values(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    log.info("job finished", seconds=1.5)
    (line,) = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {"event": "job finished", "seconds": 1.5, "level": "info", "logger": "ratchet.test"}


def test_a_text_line_is_for_people(stream: io.StringIO) -> None:
    logs.configure("info", "text", stream)
    with logs.bind(run_id=7):
        log.warning("slow", seconds=3)
    text = stream.getvalue()
    assert all(word in text for word in ("warning", "slow", "run_id=7", "seconds=3"))
    assert "\x1b" not in text


def test_lines_below_the_level_are_dropped(stream: io.StringIO) -> None:
    logs.configure("warning", "json", stream)
    log.info("no")
    log.error("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_bound_ids_are_on_every_line_inside_and_on_none_outside(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    with logs.bind(run_id=1, request_id="r"):
        with logs.bind(step_id=2, run_id=9):
            log.info("inner")
        log.info("outer")
    log.info("outside")
    inner, outer, outside = lines(stream)
    assert (inner["run_id"], inner["step_id"], inner["request_id"]) == (9, 2, "r")
    assert (outer["run_id"], "step_id" in outer) == (1, False)
    assert "run_id" not in outside


def test_bound_ids_follow_into_tasks_and_threads(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)

    async def work(number: int) -> None:
        with logs.bind(step_id=number):
            await asyncio.sleep(0)
            log.info("task", number=number)
            await asyncio.to_thread(log.info, "thread of a task", number=number)

    async def run() -> None:
        with logs.bind(run_id=1, job_id="j", attempt_id=3):
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(work(number))
            copied = contextvars.copy_context()
            thread = threading.Thread(target=copied.run, args=(log.info, "plain thread"))
            thread.start()
            thread.join()

    asyncio.run(run())
    found = lines(stream)
    assert len(found) == 11
    assert all((line["run_id"], line["job_id"], line["attempt_id"]) == (1, "j", 3) for line in found)
    assert all(line["step_id"] == line["number"] for line in found[:-1])


@pytest.mark.parametrize("name", ["uvicorn", "uvicorn.access", "uvicorn.error", "sqlalchemy.engine", "other"])
def test_lines_of_libraries_take_the_same_form_once(stream: io.StringIO, name: str) -> None:
    logs.configure("info", "json", stream)
    with logs.bind(run_id=1):
        logging.getLogger(name).warning("%s happened %d times", "it", 2)
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["level"], line["run_id"]) == (
        "it happened 2 times",
        name,
        "warning",
        1,
    )


def test_libraries_that_say_much_are_quiet_below_warning(stream: io.StringIO) -> None:
    logs.configure("debug", "json", stream)
    logging.getLogger("alembic").info("Running upgrade")
    logging.getLogger("alembic").warning("trouble")
    assert [line["event"] for line in lines(stream)] == ["trouble"]


@pytest.mark.parametrize(
    "key", ["token", "api_key", "API-Key", "password", "db_password", "client_secret", "Authorization"]
)
@pytest.mark.parametrize("format", ["text", "json"])
def test_values_under_secret_keys_are_masked(stream: io.StringIO, key: str, format: logs.Format) -> None:
    logs.configure("info", format, stream)
    log.info("one", **{key: "hunter2"})
    log.info("nested", headers={key: "hunter2"}, several=[{key: ["hunter2"]}])
    logging.getLogger("uvicorn").info("with extra", extra={key: "hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("********") >= 3


@pytest.mark.parametrize("format", ["text", "json"])
def test_secrets_in_urls_texts_and_tracebacks_are_masked(stream: io.StringIO, format: logs.Format) -> None:
    logs.configure("info", format, stream)
    url = "postgresql://u:hunter2@h/db"
    log.info(f"connecting to {url}", url=url, urls=[url])
    logging.getLogger("access").info("GET /events/stream?since=3&token=%s", "hunter2")
    try:
        password = "hunter2"
        raise ValueError(f"no answer from postgresql://u:{password}@h/db")
    except ValueError:
        log.exception("failed")
        logging.getLogger("other").exception("failed too")
    log.info("typed", value=SecretStr("hunter2"))
    assert stream.getvalue().replace('password = "hunter2"', "").count("hunter2") == 0
    assert "ValueError" in stream.getvalue()
    assert "since=3" in stream.getvalue()


def test_counts_of_tokens_are_no_secret(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    log.info("used", tokens=12, input_tokens=7, tokenizer="bpe", token=None)
    (line,) = lines(stream)
    assert (line["tokens"], line["input_tokens"], line["tokenizer"], line["token"]) == (12, 7, "bpe", None)


def test_a_line_is_one_json_object_whatever_the_values(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    loop: list[Any] = []
    loop.append(loop)
    log.info("odd\nevent", value=object(), keys={(1, 2): b"x"}, loop=loop, many={1, 2}, text="a\nb")
    assert len(lines(stream)) == 1


def test_configuring_again_replaces_the_first(stream: io.StringIO) -> None:
    logs.configure("info", "json", io.StringIO())
    logs.configure("info", "json", stream)
    log.info("once")
    assert len(lines(stream)) == 1


def test_a_logger_used_before_the_set_up_writes_nothing_to_stdout() -> None:
    import subprocess

    script = (
        "from ratchet.observe import logs; logs.logger('x').warning('early'); logs.logger('x').info('no')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "early" in done.stderr


_FIRST_LINES_OF_THREADS = """
import logging, sys, threading
from ratchet.observe import logs

logs.configure("info", "json")
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
failed = []

def write(number):
    together.wait()
    try:
        (logs.logger("ours") if number % 2 else logging.getLogger("foreign")).warning("begun")
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(repr(failed) if failed else 0)
"""


def test_the_first_lines_may_be_written_by_many_threads_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_LINES_OF_THREADS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count('"begun"') == 8, done.stderr
