"""The operations on runs, approvals, queues, jobs and schedules."""
