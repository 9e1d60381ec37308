"""Every operation gives the same answer, and the same error, as a function, a command, a request and an MCP tool.

A new operation is walked as soon as it is declared; it only has to say in `RIGHT` with what it can be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.agentkit import StateStore
from ratchet.agents import access as of_access
from ratchet.agents import judge_operations as of_judges
from ratchet.agents import operations as agents
from ratchet.agents import production_operations as of_production
from ratchet.agents.contract import place_of
from ratchet.cli import run
from ratchet.cli.catalogue import CATALOGUE, Branch, Leaf
from ratchet.kernel import RatchetError, RunStatus, StepStatus
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.agents import add_version, create_agent, end_creation, get_agent, move_current
from ratchet.ledger.production import add_remark, count_calls, note_incident
from ratchet.ledger.projects import add_project
from ratchet.ledger.questions import request_approval
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.operations import Listing, NameWindow, Operation, OrderWindow, Window, is_time, record
from ratchet.projects import operations as projects
from ratchet.projects.clarifications import ask
from ratchet.protocols import operations as protocols
from ratchet.protocols import step_operations as steps
from ratchet.protocols.actions import add_step, create_protocol, start_protocol
from ratchet.research import operations as research
from ratchet.runtime import open_ledger, open_runtime, pause_run, start_run
from ratchet.runtime.operations import approvals, jobs, runs, schedules
from ratchet.server.app import create_app
from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.api import Asker, CallRefused, operator_headers
from ratchet.server.mcp.face import Face
from ratchet.server.service import Access, Caller, Service
from ratchet.tools import operations as tools
from ratchet.workflows import operations as workflows
from ratchet.workflows import schedules as making_schedules
from ratchet.workflows import tool_operations, triggers
from ratchet.workflows.saved import keep_workflow, require_spec
from tests.agents.made_up import SCHEMA, tool
from tests.research.views.made_up import make_baseline, make_run, try_out
from tests.runtime.worker_process import load

Given = dict[str, Any]
TOKEN = "a-token-for-tests"
FAILED, MISUSED, WRONG = 1, 2, 422
KIND = "demo.primes"

# What the world holds: see `World`. The first is right, the others are refused as the thing stands.
RUNNING, PAUSED, CANCELLED, NOWHERE = 1, 2, 3, 999
PENDING_JOB, ENDED_JOB = 1, 3
PROTOCOL, PLANNING, STOPPED, STEPPED = 4, 5, 6, 7
PLAIN_STEP, STEP, DONE_STEP = 1, 3, 4
TIDES, WAVES, REPORTED = 8, 9, 10
SPEC = {
    "workflow_id": "report",
    "inputs": {"text": {"type": "string"}},
    "steps": [
        {
            "step_id": "words",
            "type": "python_tool",
            "tool": "word_count",
            "input_mapping": {"text": "${inputs.text}"},
        }
    ],
}
TRIED = "a run"
GREETER, UNMADE = "greeter", "unmade"
FIRST, SECOND = "a" * 40, "b" * 40
CALLED = {"server": "runner", "tool": "greet", "milliseconds": 12}
RIGHT: Mapping[Operation[..., Any], list[Given]] = {
    runs.list_: [{}, {"kind": "workflow"}, {"status": "paused"}, {"project_id": 7}],
    runs.show: [{"run_id": RUNNING}, {"run_id": NOWHERE}],
    runs.steps: [{"run_id": RUNNING}, {"run_id": NOWHERE}],
    runs.events: [{"run_id": RUNNING}, {"run_id": NOWHERE}],
    runs.artifacts: [{"run_id": RUNNING}, {"run_id": NOWHERE}],
    runs.all_events: [
        {"run_id": RUNNING},
        {"type": "run.*", "since": 0},
        {"kind": "onboarding"},
        {"kind": "onboarding", "type": "run.*"},
    ],
    runs.pause: [
        {"run_id": RUNNING},
        {"run_id": RUNNING, "reason": "lunch"},
        {"run_id": PAUSED},
        {"run_id": CANCELLED},
        {"run_id": NOWHERE},
    ],
    runs.resume: [{"run_id": PAUSED}, {"run_id": RUNNING}, {"run_id": CANCELLED}, {"run_id": NOWHERE}],
    runs.cancel: [{"run_id": RUNNING, "reason": "not needed"}, {"run_id": CANCELLED}, {"run_id": NOWHERE}],
    approvals.list_: [
        {"status": "pending"},
        {"status": "approved"},
        {"run_id": RUNNING, "status": "pending"},
    ],
    approvals.show: [{"approval_id": 1}, {"approval_id": NOWHERE}],
    approvals.approve: [
        {"approval_id": 1, "comment": "good"},
        {"approval_id": 2},
        {"approval_id": NOWHERE},
        {"approval_id": 1, "answer": {"size": 3}},
        {"approval_id": 3, "answer": {"size": 3}},
        {"approval_id": 3, "answer": {"colour": "red"}},
        {"approval_id": 3},
    ],
    approvals.refuse: [{"approval_id": 1}, {"approval_id": 2}, {"approval_id": NOWHERE}],
    jobs.pause: [{"name": "default"}, {"name": "nowhere"}],
    jobs.resume: [{"name": "default"}, {"name": "nowhere"}],
    jobs.jobs: [{}, {"status": "queued"}, {"queue": "other"}, {"run_id": RUNNING}],
    jobs.show: [{"job_id": PENDING_JOB}, {"job_id": NOWHERE}],
    jobs.cancel: [{"job_id": PENDING_JOB, "reason": "stuck"}, {"job_id": ENDED_JOB}, {"job_id": NOWHERE}],
    jobs.processes: [{}],
    jobs.nodes: [{}],
    schedules.list_: [{}],
    schedules.show: [{"name": "nightly"}, {"name": "nowhere"}],
    schedules.next_times: [{"name": "nightly", "count": 2}, {"name": "nowhere"}],
    schedules.read: [{"when": "every night at 2", "count": 2}, {"when": "every 7 minutes"}],
    making_schedules.put: [
        {"name": "pulse", "when": "every hour", "kind": KIND, "payload": {"file": "/dev/null"}},
        {"name": "report", "when": "daily", "workflow": "report", "inputs": {"text": "a b"}},
        {"name": "batch", "when": "daily", "optimise": {"budget_usd": 5.0}},
        {"name": "batch", "when": "daily", "optimise": {}, "queue": "default"},
        {"name": "pulse", "when": "every hour", "kind": "nowhere"},
    ],
    schedules.pause: [{"name": "nightly"}, {"name": "nowhere"}],
    schedules.resume: [{"name": "nightly"}, {"name": "nowhere"}],
    schedules.run: [{"name": "nightly"}, {"name": "nowhere"}],
    schedules.remove: [{"name": "nightly"}, {"name": "nowhere"}],
    triggers.add: [
        {"name": "hook", "kind": "webhook", "workflow": "report", "secret": "HOOK_SECRET", "takes": "text"},
        {"name": "hook", "kind": "webhook", "workflow": "report"},
        {"name": "hook", "kind": "files", "workflow": "nowhere", "folder": "/dev"},
    ],
    triggers.list_: [{}],
    triggers.show: [{"name": "pushes"}, {"name": "nowhere"}],
    triggers.pause: [{"name": "pushes"}, {"name": "nowhere"}],
    triggers.resume: [{"name": "pushes"}, {"name": "nowhere"}],
    triggers.remove: [{"name": "pushes"}, {"name": "nowhere"}],
    protocols.list_: [{}, {"project_id": 1}],
    protocols.show: [{"protocol_id": PROTOCOL}, {"protocol_id": NOWHERE}],
    protocols.start: [{"protocol_id": PROTOCOL}, {"protocol_id": PLANNING}, {"protocol_id": NOWHERE}],
    protocols.pause: [{"protocol_id": PLANNING}, {"protocol_id": PROTOCOL}, {"protocol_id": RUNNING}],
    protocols.resume: [{"protocol_id": STOPPED}, {"protocol_id": PROTOCOL}, {"protocol_id": NOWHERE}],
    protocols.cancel: [{"protocol_id": PLANNING}, {"protocol_id": NOWHERE}],
    protocols.run_next: [{"protocol_id": STEPPED}, {"protocol_id": PROTOCOL}, {"protocol_id": NOWHERE}],
    protocols.retry: [{"protocol_id": STEPPED}, {"protocol_id": PROTOCOL}, {"protocol_id": NOWHERE}],
    protocols.open_pr: [{"protocol_id": PLANNING}, {"protocol_id": PROTOCOL}, {"protocol_id": NOWHERE}],
    steps.run_step: [{"step_id": STEP}, {"step_id": DONE_STEP}, {"step_id": NOWHERE}],
    steps.review_step: [{"step_id": STEP}, {"step_id": DONE_STEP}, {"step_id": NOWHERE}],
    steps.approve_step: [{"step_id": STEP}, {"step_id": DONE_STEP}, {"step_id": NOWHERE}],
    protocols.create: [
        {"project_id": 1, "protocol_name": "0011-new", "description": "Add a login."},
        {"project_id": 1, "protocol_name": "0004-change"},
        {"project_id": NOWHERE, "protocol_name": "0011-new"},
    ],
    protocols.of_project: [{"project_id": 1}, {"project_id": NOWHERE}],
    protocols.import_codemachine: [
        {"project_id": 1, "protocol_name": "0011-new", "workspace_path": "nowhere"},
        {"project_id": NOWHERE, "protocol_name": "0011-new", "workspace_path": "."},
    ],
    steps.list_: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.add: [
        {"protocol_id": STEPPED, "step_index": 2, "step_name": "02-third", "step_type": "work"},
        {"protocol_id": STEPPED, "step_index": 1, "step_name": "02-third", "step_type": "work"},
        {"protocol_id": NOWHERE, "step_index": 2, "step_name": "02-third", "step_type": "work"},
    ],
    steps.show: [{"step_id": STEP}, {"step_id": PLAIN_STEP}, {"step_id": NOWHERE}],
    steps.attempt: [{"attempt_id": 1}, {"attempt_id": NOWHERE}],
    steps.attempt_artifacts: [{"attempt_id": 1}, {"attempt_id": NOWHERE}],
    steps.log: [{"attempt_id": 1}, {"attempt_id": 1, "offset": 5}, {"attempt_id": NOWHERE}],
    steps.spec: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.ci: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.protocol_log: [
        {"protocol_id": STEPPED},
        {"protocol_id": STEPPED, "limit": 2},
        {"protocol_id": NOWHERE},
    ],
    steps.events: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.artifacts: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.spec_schema: [{}],
    steps.audit: [
        {"protocol_id": STEPPED, "backfill": True},
        {"project_id": 1, "interval_seconds": 3600.0},
        {"project_id": NOWHERE},
    ],
    steps.check_spec: [{"spec": {"steps": []}}],
    steps.clarifications: [{"protocol_id": STEPPED}, {"protocol_id": NOWHERE}],
    steps.clarification: [
        {"protocol_id": STEPPED, "key": "colour"},
        {"protocol_id": STEPPED, "key": "nowhere"},
        {"protocol_id": STEPPED, "key": "colour", "step_id": STEP},
    ],
    steps.answer_clarification: [
        {"protocol_id": STEPPED, "key": "colour", "answer": "red"},
        {"protocol_id": STEPPED, "key": "nowhere", "answer": "red"},
    ],
    projects.list_: [{}, {"archived": True}],
    projects.register: [{"name": "till", "local_path": "/nowhere/till"}, {"name": "till"}],
    projects.show: [{"project_id": 1}, {"project_id": NOWHERE}],
    projects.change: [
        {"project_id": 1, "base_branch": "develop"},
        {"project_id": 1, "ci_provider": None},
        {"project_id": NOWHERE, "name": "till"},
    ],
    projects.archive: [{"project_id": 1}, {"project_id": NOWHERE}],
    projects.setup: [{"project_id": 1}, {"project_id": NOWHERE}],
    projects.change_setup: [
        {"project_id": 1, "commands": ["make"]},
        {"project_id": 1, "commands": None},
        {"project_id": NOWHERE, "commands": None},
    ],
    projects.change_checks: [{"project_id": 1, "checks": None}, {"project_id": NOWHERE, "checks": None}],
    projects.onboarding: [{"project_id": 1}, {"project_id": NOWHERE}],
    projects.start_onboarding: [
        {"project_id": 1},
        {"project_id": 1, "ci_files": True},
        {"project_id": NOWHERE},
    ],
    projects.keep_secrets: [
        {"project_id": 1, "secrets": {"git_token": "abc", "api_token": None}},
        {"project_id": 1, "secrets": {"a_password": "abc"}},
        {"project_id": NOWHERE, "secrets": {}},
    ],
    projects.branches: [{"project_id": 1}, {"project_id": NOWHERE}],
    projects.delete_branch: [
        {"project_id": 1, "branch": "main", "confirm": True},
        {"project_id": 1, "branch": "old/idea"},
        {"project_id": NOWHERE, "branch": "old", "confirm": True},
    ],
    projects.clarifications: [{"project_id": 1}, {"project_id": 1, "open": True}, {"project_id": NOWHERE}],
    projects.clarification: [{"project_id": 1, "key": "forge"}, {"project_id": 1, "key": "nowhere"}],
    projects.answer_clarification: [
        {"project_id": 1, "key": "forge", "answer": "github"},
        {"project_id": 1, "key": "nowhere", "answer": "github"},
    ],
    research.list_: [{}, {"status": "failed"}],
    research.start: [
        {"task": "circle_packing", "engine": "nowhere", "trials": 1},
        {"task": "circle_packing", "engine": "search"},
    ],
    research.tasks: [{}],
    research.status: [{"run": TRIED}, {"run": "nowhere"}],
    research.trials: [{"run": TRIED}, {"run": TRIED, "specialist": "opt"}, {"run": "nowhere"}],
    research.trial: [{"run": TRIED, "exp": "001"}, {"run": TRIED, "exp": "999"}, {"run": TRIED, "exp": "x"}],
    research.leaderboard: [{"run": TRIED}, {"run": "nowhere"}],
    research.tree: [{"run": TRIED}, {"run": TRIED, "trial": "001"}, {"run": TRIED, "trial": "999"}],
    research.knowledge: [{"run": TRIED}, {"run": "nowhere"}],
    research.activity: [{"run": TRIED}, {"run": "nowhere"}],
    research.misses: [{"run": TRIED}, {"run": "nowhere"}],
    research.yields: [{"run": TRIED}, {"run": "nowhere"}],
    research.cost: [{"run": TRIED}, {"run": "nowhere"}],
    research.lessons: [{"run": TRIED}, {"run": "nowhere"}],
    research.calibration: [{"run": TRIED}, {"run": "nowhere"}],
    research.pause: [{"run": "tides"}, {"run": str(RUNNING)}, {"run": "nowhere"}],
    research.resume: [{"run": "waves"}, {"run": "nowhere"}],
    research.stop: [{"run": "tides"}, {"run": "nowhere"}],
    research.verify: [
        {"certificate": f"{TRIED}/001"},
        {"certificate": f"{TRIED}/002"},
        {"certificate": f"{TRIED}/x"},
        {"certificate": "nowhere/001"},
        {"certificate": "certificate.json"},
    ],
    research.remeasure: [{"certificate": f"{TRIED}/001"}, {"certificate": "nowhere/001"}],
    research.compare: [
        {"landscape": "hill", "trials": 8, "seeds": 2},
        {"landscape": "moon"},
        {"landscape": "hill", "recorded": TRIED},
        {"landscape": "hill", "trials": 10_000, "seeds": 1_000},
        {"recorded": TRIED},
        {"recorded": "nowhere"},
        {},
        {"landscape": "hill", "engine": "search"},
        {"task": "circle_packing", "noise": 0.5},
        {"task": "circle_packing", "engine": "search", "trials": 5, "seeds": 2},
        {"task": "nowhere", "trials": 5},
    ],
    agents.list_: [{}],
    agents.create: [
        {"name": "other", "description": "Greet.", "engine": "nowhere"},
        {"name": "No Name", "description": "Greet."},
    ],
    agents.show: [{"name": GREETER}, {"name": UNMADE}, {"name": "nobody"}],
    agents.delete: [{"name": GREETER}, {"name": GREETER, "purge": True}, {"name": "nobody"}],
    agents.versions: [{"name": GREETER}, {"name": UNMADE}, {"name": "nobody"}],
    agents.version: [
        {"name": GREETER, "version": "latest"},
        {"name": GREETER, "version": "9.9.9"},
        {"name": "nobody", "version": "latest"},
    ],
    agents.diff: [{"name": GREETER, "old": "0.0.0", "new": "9.9.9"}, {"name": UNMADE}, {"name": "nobody"}],
    agents.runs: [{"name": GREETER}, {"name": "nobody"}],
    agents.feedback: [
        {"name": GREETER, "message": "Be less formal.", "severity": "high", "engine": "nowhere"},
        {"name": "nobody", "message": "Be less formal."},
    ],
    agents.rollback: [
        {"name": GREETER},
        {"name": GREETER, "version": "0.0.0", "carry_state": True},
        {"name": UNMADE},
        {"name": "nobody"},
    ],
    agents.promote: [
        {"name": GREETER, "version": "0.0.0"},
        {"name": GREETER, "version": "0.1.0", "force": True},
        {"name": GREETER, "version": "the good one"},
        {"name": UNMADE, "version": "0.0.0"},
        {"name": "nobody", "version": "0.0.0"},
    ],
    agents.pin: [
        {"name": GREETER, "version": "0.0.0"},
        {"name": GREETER, "version": "latest"},
        {"name": GREETER, "version": "9.9.9"},
    ],
    agents.unpin: [{"name": GREETER}, {"name": "nobody"}],
    agents.tools: [{"name": "nobody"}, {"name": GREETER, "version": "9.9.9"}],
    agents.call_: [
        {"name": "nobody", "tool": "greet", "arguments": {"who": "Ada"}},
        {"name": GREETER, "tool": "greet", "version": "9.9.9"},
    ],
    agents.logs: [
        {"name": GREETER},
        {"name": GREETER, "version": "0.0.0", "server": "tuner", "lines": 1},
        {"name": "nobody"},
    ],
    agents.state: [
        {"name": GREETER},
        {"name": GREETER, "at": 1},
        {"name": GREETER, "at": NOWHERE},
        {"name": GREETER, "version": "0.0.0"},
    ],
    agents.history: [{"name": GREETER}, {"name": "nobody"}],
    of_access.add_key: [
        {"name": GREETER, "key": "ci", "scopes": ["everything"]},
        {"name": "nobody", "key": "ci"},
    ],
    of_access.list_keys: [{"name": GREETER}, {"name": "nobody"}],
    of_access.revoke_key: [{"name": GREETER, "key": "ci"}, {"name": "nobody", "key": "ci"}],
    of_access.add_egress: [
        {"name": GREETER, "host": "example.com:8443"},
        {"name": GREETER, "host": "127.0.0.1"},
        {"name": "nobody", "host": "example.com"},
    ],
    of_access.list_egress: [{"name": GREETER}, {"name": "nobody"}],
    of_access.remove_egress: [{"name": GREETER, "host": "example.com"}, {"name": "nobody", "host": "a.com"}],
    of_access.set_secret: [
        {"name": GREETER, "secret": "WEATHER_TOKEN", "value": "long enough"},
        {"name": GREETER, "secret": "PATH", "value": "long enough"},
        {"name": "nobody", "secret": "WEATHER_TOKEN", "value": "long enough"},
    ],
    of_access.list_secrets: [{"name": GREETER}, {"name": "nobody"}],
    of_access.remove_secret: [{"name": GREETER, "secret": "A"}, {"name": "nobody", "secret": "A"}],
    of_judges.approve: [{"name": GREETER}, {"name": "nobody"}],
    of_judges.refuse: [{"name": GREETER, "run_id": RUNNING}, {"name": "nobody"}],
    of_judges.approval: [{"name": GREETER, "mode": "always"}, {"name": "nobody", "mode": "settings"}],
    of_judges.add_eval: [
        {"name": GREETER, "tool": "greet", "arguments": {"name": "Ada"}},
        {"name": "nobody", "tool": "greet"},
    ],
    of_judges.list_evals: [{"name": GREETER}, {"name": "nobody"}],
    of_judges.remove_eval: [{"name": GREETER, "eval_id": NOWHERE}, {"name": "nobody", "eval_id": 1}],
    of_judges.record_eval: [{"name": GREETER, "call_id": NOWHERE}, {"name": "nobody", "call_id": 1}],
    of_judges.run_evals: [{"name": GREETER}, {"name": "nobody"}],
    of_judges.calls: [{"name": GREETER}, {"name": "nobody"}],
    of_judges.certificate: [{"name": GREETER}, {"name": "nobody"}],
    of_production.production: [{"name": GREETER}, {"name": "nobody"}],
    of_production.incidents: [{"name": GREETER}, {"name": "nobody"}],
    of_production.propose: [{"name": "nobody", "incident_id": 1}],
    of_production.dismiss: [
        {"name": GREETER, "incident_id": 1},
        {"name": GREETER, "incident_id": NOWHERE},
        {"name": "nobody", "incident_id": 1},
    ],
    of_production.learn: [{"name": GREETER, "mode": "auto"}, {"name": "nobody", "mode": "ask"}],
    of_production.remarks: [{"name": GREETER}, {"name": "nobody"}],
    of_production.traffic: [
        {"name": GREETER, "share": "10%", "to": "0.0.0"},
        {"name": GREETER, "share": "10%", "to": "0.1.0"},
        {"name": GREETER, "share": "much", "to": "0.0.0"},
        {"name": GREETER, "stop": True},
        {"name": GREETER},
    ],
    of_production.watch: [
        {"name": GREETER, "when": "every night at 2", "rollback": True},
        {"name": GREETER, "off": True},
        {"name": "nobody", "when": "daily"},
    ],
    agents.restore: [
        {"name": GREETER, "number": 1},
        {"name": GREETER, "number": NOWHERE},
        {"name": "nobody", "number": 1},
    ],
    workflows.saved: [{}],
    workflows.save: [{"spec": SPEC}, {"spec": SPEC, "name": "other"}, {"spec": {"steps": []}}],
    workflows.check: [{"spec": SPEC}, {"spec": {"steps": []}}],
    workflows.fill: [{"spec": SPEC, "engine": "nowhere"}, {"spec": {"steps": []}}],
    workflows.plan: [{"sentence": "Count words.", "engine": "nowhere"}],
    workflows.all_runs: [{}],
    workflows.outcome: [{"run_id": REPORTED}, {"run_id": RUNNING}, {"run_id": TIDES}, {"run_id": NOWHERE}],
    workflows.show: [{"name": "report"}, {"name": "nowhere"}],
    workflows.delete: [{"name": "report"}, {"name": "nowhere"}],
    workflows.waves: [{"name": "report"}, {"name": "nowhere"}],
    workflows.runs: [{"name": "report"}, {"name": "nowhere"}],
    workflows.start: [
        {"name": "report", "inputs": {"text": "a b"}, "priority": 3},
        {"name": "nowhere"},
    ],
    workflows.profile: [{"name": "report"}, {"name": "report", "last": 1}, {"name": "nowhere"}],
    workflows.evolve: [{"name": "report"}, {"name": "nowhere"}],
    tools.list_: [{}, {"type": "python"}, {"tag": "text"}],
    tools.search: [{"q": "count the words of a text", "limit": 1}],
    tools.show: [
        {"tool": "word_count"},
        {"tool": "word_count", "version": "9.9.9"},
        {"tool": "nowhere"},
    ],
    tools.versions: [{"tool": "word_count"}, {"tool": "nowhere"}],
    tools.pin: [
        {"tool": "word_count", "version": "1.0.0"},
        {"tool": "word_count", "version": "9.9.9"},
        {"tool": "nowhere", "version": "1.0.0"},
    ],
    tools.unpin: [{"tool": "word_count"}, {"tool": "nowhere"}],
    tools.feedback: [
        {"tool": "word_count", "task": "count words", "good": True},
        {"tool": "nowhere", "task": "count words", "good": False},
    ],
    tools.score: [
        {"run_id": RUNNING, "step": "words", "score": 0.5},
        {"run_id": RUNNING, "step": "nowhere", "score": 1.0},
        {"run_id": RUNNING, "step": "words"},
        {"run_id": NOWHERE, "step": "words", "score": 0.0},
    ],
    tool_operations.run: [
        {"tool": "word_count", "inputs": {"text": "a b c"}},
        {"tool": "word_count"},
        {"tool": "nowhere"},
    ],
    tool_operations.examples: [{"tool": "word_count"}, {"tool": "nowhere"}],
    tool_operations.rollback: [{"tool": "word_count"}, {"tool": "nowhere"}],
    tool_operations.approve: [
        {"tool": "word_count", "version": "1.0.0"},
        {"tool": "word_count", "version": "9.9.9"},
        {"tool": "nowhere", "version": "1.0.0"},
    ],
    tool_operations.certificate: [
        {"tool": "word_count"},
        {"tool": "word_count", "version": "9.9.9"},
        {"tool": "nowhere"},
    ],
    tool_operations.evolve: [{"tool": "word_count"}, {"tool": "nowhere"}],
}
# A command that does several operations, and is called after another one.
COMMANDS = {
    workflows.outcome: "workflow show",
    research.start: "research run",
    research.remeasure: "research verify --remeasure",
    agents.history: "agent state --history",
    agents.restore: "agent state",
}
# Their commands do the work here and now, and tell what came of it; with --detach they only begin it.
CARRIED = {
    research.start,
    research.remeasure,
    research.compare,
    agents.create,
    agents.feedback,
    of_production.propose,
    protocols.start,
    protocols.resume,
    protocols.run_next,
    protocols.retry,
    protocols.open_pr,
    steps.run_step,
    steps.review_step,
    steps.approve_step,
    workflows.start,
}
# The same for a command that has no --detach: only what it refuses is compared.
HERE_ONLY = {research.resume}


@dataclass(frozen=True)
class Answer:
    """What a face said: an answer, or an error with its message and its code of that face."""

    value: Any = None
    error: str | None = None
    code: int = 0


class World:
    """Runs, approvals, jobs and a schedule, with the same numbers each time that it is made."""

    def __init__(self, home: Path, template: Path) -> None:
        shutil.copytree(template, home)
        self.home = home
        self.loaded = load(home, f"sqlite:///{home}/ledger.db")
        self.ledger = open_ledger(self.loaded)
        self.runtime = open_runtime(self.loaded, self.ledger)

    def fill(self) -> None:
        with self.ledger.write() as tx:
            for number in (RUNNING, PAUSED, CANCELLED):
                run_id = start_run(
                    tx, self.runtime, KIND, kind="workflow", name=f"run-{number}", spec={"n": number}
                )
                assert run_id == number
                change_run(tx, run_id, RunStatus.RUNNING)
            [step_id, _] = create_steps(tx, RUNNING, [("first", {}), ("second", {})])
            open_attempt(tx, get_step(tx, step_id))
            self.ledger.artifacts.put(tx, b"done", name="out.txt", media_type="text/plain", run_id=RUNNING)
            change_run(tx, PAUSED, RunStatus.PAUSED, reason="paused before")
            change_run(tx, CANCELLED, RunStatus.CANCELLED, reason="cancelled before")
            self.runtime.jobs.request_stop(tx, ENDED_JOB, "cancelled before")
            for subject in ("first", "second"):
                request_approval(
                    tx, once=subject, subject=subject, question="Is it good?", data={}, run_id=RUNNING
                )
            asked = {"answer_schema": {"type": "object", "required": ["size"]}}
            request_approval(tx, once="size", subject="size", question="How large?", data=asked)
            self._fill_protocols(tx)
            start_run(tx, self.runtime, "research.run", kind="research", name="tides")
            pause_run(
                tx, self.runtime, start_run(tx, self.runtime, "research.run", kind="research", name="waves")
            )
            self._fill_workflows(tx)
            self._fill_agents(tx)
            self.runtime.put_schedule(tx, "nightly", "every night at 2", KIND, {"file": "/dev/null"})
        run_id = make_run(self.ledger)
        make_baseline(self.ledger, run_id)
        try_out(self.ledger, run_id, "keep", 1.1, expected_delta="0.2")
        try_out(self.ledger, run_id, "discard", 1.09)
        approvals.refuse(self._access, 2)
        triggers.add(
            self._access, "pushes", triggers.TriggerKind.WEBHOOK, "report", secret="HOOK_SECRET", takes="text"
        )

    def _fill_workflows(self, tx: Transaction) -> None:
        spec = keep_workflow(tx, require_spec(SPEC), origin="test").spec
        run_id = start_run(
            tx, self.runtime, KIND, kind="workflow", name="report", spec={"workflow": spec, "tools": {}}
        )
        assert run_id == REPORTED
        [step_id] = create_steps(tx, run_id, [("words", {})])
        change_run(tx, run_id, RunStatus.RUNNING)
        change_step(tx, step_id, StepStatus.RUNNING)
        change_step(tx, step_id, StepStatus.COMPLETED, result={"value": 2, "metrics": {"wall_ms": 5.0}})
        change_run(tx, run_id, RunStatus.COMPLETED, result={"outputs": {"words": {"value": 2}}})

    def _fill_agents(self, tx: Transaction) -> None:
        create_agent(tx, UNMADE, "Still to be made.")
        agent = create_agent(tx, GREETER, "Greet people.", engine="codex")
        run_id = create_run(tx, "agent", GREETER, spec={"action": "create", "message": "Greet people."})
        for version, commit, parent in (("0.0.0", FIRST, None), ("0.1.0", SECOND, FIRST)):
            add_version(
                tx, agent, commit, version, parent=parent, summary="a change", tools=[tool()], run_id=run_id
            )
            agent = get_agent(tx, GREETER)
            move_current(tx, agent, commit, expected=agent.current, why="promoted")
            directory = place_of(self.home, GREETER).version(commit)
            (directory / "logs").mkdir(parents=True)
            (directory / "logs" / "runner.log").write_text("one\ntwo\n")
            (directory / "state_schema.json").write_text(json.dumps(SCHEMA))
            StateStore(directory).begin({"greetings": 0}, by="architect")
        with StateStore(directory).edit(by="runner") as state:
            state["greetings"] = 1
        end_creation(tx, agent.id, run_id=run_id)
        count_calls(
            tx, agent.id, [{**CALLED, "outcome": each, "commit": SECOND} for each in ("ok", "failed")]
        )
        found = {"kind": "failed", "message": "KeyError: 'Ada'", "expect": None, "is_whole": True}
        found |= {"server": "runner", "tool": "greet", "arguments": {"name": "Ada"}}
        note_incident(tx, get_agent(tx, GREETER), ["f" * 64, "e" * 64], at_commit=SECOND, **found)
        add_remark(tx, agent.id, SECOND, "d" * 64, message="too shy", severity="high", most=9, again_after=0)

    def _fill_protocols(self, tx: Transaction) -> None:
        project_id = add_project(tx, "shop", base_branch="main", facts={})
        for number in (PROTOCOL, PLANNING, STOPPED, STEPPED):
            run_id = create_protocol(
                tx, self.runtime, project_id, f"{number:04}-change", planned=number == STEPPED
            )
            assert run_id == number
        start_protocol(tx, self.runtime, PLANNING)
        start_protocol(tx, self.runtime, STOPPED)
        pause_run(tx, self.runtime, STOPPED)
        for index, name in enumerate(("00-first", "01-second")):
            step_id = add_step(tx, STEPPED, name=name, step_index=index, step_type="work", policies=[])
            assert step_id == STEP + index
        change_step(tx, STEP, StepStatus.RUNNING)
        change_step(tx, STEP, StepStatus.FAILED, reason="not good enough")
        change_step(tx, DONE_STEP, StepStatus.CANCELLED)
        ask(tx, project_id, "forge", "Which forge?", options=["github", "gitlab"], applies_to="onboarding")
        ask(tx, project_id, "colour", "Which colour?", run_id=STEPPED, applies_to="execution")

    @property
    def _access(self) -> Access:
        return Access(Service(self.runtime, self.loaded), "a-request", Caller())

    @cached_property
    def app(self) -> Any:
        return create_app(self.runtime, self.loaded, TOKEN)

    def directly(self, operation: Operation[..., Any], given: Given) -> Any:
        """What the function answers, or the `RatchetError` that it raises."""
        typed = {name: _typed(operation, name, value) for name, value in given.items()}
        window: Given = {"window": Window()} if operation.takes_window else {}
        window |= {"window": NameWindow()} if operation.takes_names else {}
        window |= {"window": OrderWindow()} if operation.takes_order else {}
        try:
            answer = operation(self._access, **window, **typed)
            return asyncio.run(answer) if operation.is_async else answer
        except RatchetError as error:
            return error

    def by_cli(self, operation: Operation[..., Any], given: Given) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        is_argument = {name: operation.is_argument(each) for name, each in operation.parameters.items()}
        places = [str(given[name]) for name in operation.parameters if name in given and is_argument[name]]
        options = [
            text
            for name, value in given.items()
            if not is_argument[name]
            for text in _options(operation, name, value)
        ]
        options += ["--detach"] if operation in CARRIED else []
        options += ["--yes"] if operation.asks else []
        line = ["--home", str(self.home), *command_of(operation).split(), "--json", *options, "--", *places]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(line)
        if code and not out.getvalue():
            return Answer(error=json.loads(err.getvalue().splitlines()[-1])["error"], code=code)
        return Answer(json.loads(out.getvalue()))

    def by_api(self, operation: Operation[..., Any], given: Given) -> Answer:
        client = TestClient(self.app, headers={"Authorization": f"Bearer {TOKEN}"})
        path = operation.path.replace(":path", "").format(
            **{name: value for name, value in given.items() if _is_place(operation, name)}
        )
        rest = {name: value for name, value in given.items() if not _is_place(operation, name)}
        query = {name: rest.pop(name) for name in [*rest] if operation.parameters[name].about.query}
        has_body = operation.method in ("POST", "PUT", "PATCH") and rest
        body = next((rest[name] for name in rest if operation.parameters[name].about.whole), rest)
        sent = {"json": body, "params": query} if has_body else {"params": rest | query}
        answer = client.request(operation.method, path, **sent)  # type: ignore[arg-type]
        if answer.status_code >= 400:
            return Answer(error=answer.json()["detail"], code=answer.status_code)
        return Answer(answer.json() if answer.content else None)

    def by_mcp(self, face: Face, operation: Operation[..., Any], given: Given) -> Answer:
        assert operation.tool is not None
        asker = Asker(self.app, operator_headers(TOKEN))
        try:
            value = asyncio.run(face.call(asker, operation.tool.name, given))
        except CallRefused as error:
            return Answer(error=str(error), code=1)
        except RatchetError as error:
            return Answer(error=str(error), code=error.exit_code)
        added = ("note", "cut") if operation.tool is not None and operation.tool.queues else ("cut",)
        return Answer({name: each for name, each in value.items() if name not in added})


@pytest.fixture(scope="module")
def filled_home(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """The home of a world, to be copied: filling it takes as long as the calls that are compared."""
    empty = tmp_path_factory.mktemp("empty")
    shutil.copy(sqlite_template, empty / "ledger.db")
    made = World(tmp_path_factory.mktemp("filled") / "home", empty)
    made.fill()
    made.ledger.close()
    return made.home


@pytest.fixture
def worlds(tmp_path: Path, filled_home: Path) -> Iterator[Iterator[World]]:
    """As many worlds as are wanted, one like the other."""
    made: list[World] = []

    def make() -> Iterator[World]:
        while True:
            made.append(World(tmp_path / f"home-{len(made)}", filled_home))
            yield made[-1]

    yield make()
    for each in made:
        each.ledger.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, filled_home: Path) -> Iterator[World]:
    """One for what changes nothing."""
    made = World(tmp_path_factory.mktemp("world") / "home", filled_home)
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def face(world: World) -> Face:
    """The tools with their schemas; what they do is done in the world that is asked."""
    return Face(world.app, world.ledger, allow_actions=True)


CASES = [
    pytest.param(operation, given, id=f"{operation.name} {json.dumps(given)}")
    for operation in EVERY
    for given in RIGHT.get(operation, ())
]


def test_every_operation_is_walked() -> None:
    assert {each.name for each in EVERY} == {each.name for each in RIGHT}
    assert len({each.name for each in EVERY}) == len({each.api for each in EVERY}) == len(EVERY)


@pytest.mark.parametrize(("operation", "given"), CASES)
def test_every_face_gives_the_answer_or_the_error_of_the_function(
    world: World, worlds: Iterator[World], face: Face, operation: Operation[..., Any], given: Given
) -> None:
    if operation.reads:
        worlds = itertools.repeat(world)
    expected = next(worlds).directly(operation, given)
    refused = isinstance(expected, RatchetError)
    if has_command(operation) and (refused or operation not in HERE_ONLY):
        check_cli(operation, next(worlds).by_cli(operation, given), expected)
    check_api(operation, next(worlds).by_api(operation, given), expected)
    if is_offered(operation, given):
        check_mcp(operation, next(worlds).by_mcp(face, operation, given), expected)


WRONG_CASES = [
    pytest.param(operation, {**RIGHT[operation][0], name: value}, id=f"{operation.name} {name}={str(value)[:20]}")
    for operation in EVERY
    for name, parameter in operation.parameters.items()
    for value in (
        ["abc"] if name == "limit" and parameter.about.most is None
        else [*(() if parameter.about.least == 0 else ("0",)), "-1", "abc", str(2**63)] if parameter.type is int
        else ["nothing-of-the-kind"] if parameter.choices
        else ["x" * (parameter.about.longest + 1)] if parameter.about.longest
        else []
    )
]  # fmt: skip


@pytest.mark.parametrize(("operation", "given"), WRONG_CASES)
def test_what_cannot_be_meant_is_refused_by_every_face(
    world: World, face: Face, operation: Operation[..., Any], given: Given
) -> None:
    if has_command(operation):
        named = any(
            given[name] != RIGHT[operation][0].get(name) for name in names_too(operation) if name in given
        )
        named |= not is_made(operation)
        # Text in the place of a number is a name there, of a thing that there is not; so is a name that is too long.
        assert world.by_cli(operation, given).code in ((MISUSED, FAILED) if named else (MISUSED,))
    assert world.by_api(operation, given).code == WRONG
    if is_offered(operation, given):
        assert world.by_mcp(face, operation, given).error


def check_cli(operation: Operation[..., Any], said: Answer, expected: Any) -> None:
    if isinstance(expected, RatchetError):
        assert (said.error, said.code) == (str(expected), expected.exit_code)
        return
    assert said.error is None
    if operation in CARRIED:
        return
    plain = _plain(expected.items if isinstance(expected, Listing) else expected)
    found = _without_times(said.value)
    if isinstance(found, dict):
        # A look may show more of a thing than what the operation answers, such as the steps of a run.
        found = {name: found.get(name) for name in plain}
    assert found == plain


def check_api(operation: Operation[..., Any], said: Answer, expected: Any) -> None:
    if isinstance(expected, RatchetError):
        assert (said.error, said.code) == (str(expected), expected.http_status)
        return
    assert said.error is None
    if operation.status == 204:
        assert said.value is None
        return
    answer = operation.translated_answer(expected)
    if isinstance(answer, Listing):
        items = said.value["items"] if operation.enveloped else said.value
        assert _without_times(items) == _plain(answer.items)
    else:
        assert _without_times(said.value) == _plain(answer)


def check_mcp(operation: Operation[..., Any], said: Answer, expected: Any) -> None:
    if isinstance(expected, RatchetError):
        assert said.error == str(expected)
        return
    assert said.error is None
    if operation.status == 204:
        assert said.value == {"done": True}
        return
    answer = operation.translated_answer(expected)
    if isinstance(answer, Listing):
        found = said.value["items"]
        # It lists fewer at once.
        assert len(found) == len(answer.items) or said.value["next"] is not None
        assert _without_times(found) == _plain(answer.items[: len(found)])
    else:
        # What has names of its own, such as a state, is the value of one name.
        found = said.value["value"] if isinstance(answer, dict) else said.value
        assert _without_times(found) == _plain(answer)


def names_too(operation: Operation[..., Any]) -> list[str]:
    """The parameters for which a person may give a name instead of a number."""
    return [name for name, each in operation.parameters.items() if each.about.find is not None]


def command_of(operation: Operation[..., Any]) -> str:
    return COMMANDS.get(operation, operation.name)


def has_command(operation: Operation[..., Any]) -> bool:
    return _in_catalogue(operation) is not None


def is_offered(operation: Operation[..., Any], given: Given) -> bool:
    """Whether an MCP tool takes all of this."""
    return operation.tool is not None and not operation.tool.without & given.keys()


def is_made(operation: Operation[..., Any]) -> bool:
    """Whether the command is made from the operation, and nothing of it was written by hand."""
    found = _in_catalogue(operation)
    assert isinstance(found, Leaf)
    return not found.module.startswith("ratchet.cli.")


def _in_catalogue(operation: Operation[..., Any]) -> Leaf | Branch | None:
    group, *rest = command_of(operation).split()
    found: Leaf | Branch | None = CATALOGUE[group]
    for word in rest:
        if not isinstance(found, Branch):
            return found
        found = found.parts.get(word)
    return found


def _options(operation: Operation[..., Any], name: str, value: Any) -> list[str]:
    flag = operation.parameters[name].about.flag or f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag.split("/")[0 if value else 1]]
    if name in ("arguments", "answer") or isinstance(value, list):
        return [flag, json.dumps(value)]
    if isinstance(value, dict):
        return [text for pair in value.items() for text in ("--input", "=".join(pair))]
    return [flag, str(value)]


def _is_place(operation: Operation[..., Any], name: str) -> bool:
    return name in operation.places


def _typed(operation: Operation[..., Any], name: str, value: Any) -> Any:
    parameter = operation.parameters[name]
    if is_dataclass(parameter.type):
        return parameter.type(**value)
    return parameter.type(value) if parameter.choices and isinstance(parameter.type, type) else value


def _plain(answer: Any) -> Any:
    """As JSON has it, without what differs from one world, or one face, to another."""
    items = [_record(each) for each in answer] if isinstance(answer, list | tuple) else _record(answer)
    return _without_times(json.loads(json.dumps(items, default=str)))


def _record(item: Any) -> Any:
    return record(item) if is_dataclass(item) and not isinstance(item, type) else item


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    if not isinstance(value, dict):
        return value
    # Who asked is told by the face, and when and how long differs.
    own = {
        "actor",
        "request_id",
        "decided_by",
        "created_by",
        "next",
        "process_id",
        "origin",
        "metrics",
        "directory",
        "by",
    }
    return {
        name: _without_times(each) for name, each in value.items() if name not in own and not is_time(name)
    }


# Tables with what a node, a tool or a person is given, or with what has no engine in it.
FREE = {
    "certificate",
    "inputs",
    "arguments",
    "answer",
    "expect",
    "secrets",
    "default_models",
    "template_source",
    "spec",
    "details",
}


def test_every_parameter_that_can_name_an_engine_is_checked() -> None:
    """What a caller over HTTP or MCP may name is decided in one place: `Param.engine` leads there."""
    unchecked = [
        f"{each.name} {parameter.name}"
        for each in EVERY
        for parameter in each.parameters.values()
        if ("engine" in parameter.name or "dict" in str(parameter.type) or parameter.type is Any)
        and parameter.name not in FREE
        and not parameter.about.engine
    ]
    assert unchecked == []
