"""Durable execution: jobs, queues, schedules, workers. The ledger is the truth and the queue."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.ledger.ledger import open_ledger
    from ratchet.runtime.attempts import run_step
    from ratchet.runtime.job import Job, JobStatus, count_jobs, get_job, list_jobs
    from ratchet.runtime.jobs import Jobs, QueueState, list_queues
    from ratchet.runtime.processes import Process, anybody_works, list_processes
    from ratchet.runtime.runs import cancel_run, complete_run, enter_run, pause_run, resume_run, start_run
    from ratchet.runtime.runtime import (
        GaveWay,
        GroupCommit,
        JobContext,
        Kinds,
        Runtime,
        configured_budgets,
        open_runtime,
    )
    from ratchet.runtime.schedules import (
        Missed,
        Schedule,
        get_schedule,
        list_schedules,
        put_schedule,
        remove_schedule,
    )
    from ratchet.runtime.timetable import Timetable, When, read_when
    from ratchet.runtime.worker import Worker, work
else:
    __getattr__ = on_demand(__name__)
