"""Every command by its name: what it is for and where it lives.

Help is drawn from this table, so that asking for it imports no command and nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Leaf(NamedTuple):
    """A command, as `module:name` in `ratchet.cli.commands`, or an operation as `package.module:name`."""

    help: str
    target: str

    @property
    def module(self) -> str:
        """The module that the command is in."""
        module = self.target.partition(":")[0]
        return f"ratchet.{module}" if "." in module else f"ratchet.cli.commands.{module}"

    @property
    def source(self) -> Path:
        """The file of that module."""
        return Path(__file__).parents[2].joinpath(*self.module.split(".")).with_suffix(".py")


class Branch(NamedTuple):
    """A command that holds further commands. `about` says what a reader should know before choosing one."""

    help: str
    parts: Mapping[str, Leaf | Branch]
    about: str


CATALOGUE: Mapping[str, Leaf | Branch] = {
    "init": Leaf("Make a home with its settings and ledger.", "init:init"),
    "setup": Leaf("Find keys, logins and models here, and choose who works and reviews.", "setup:setup"),
    "demo": Leaf("Watch Ratchet work, in less than a minute.", "init:demo"),
    "chat": Leaf("Say what you want: it is planned, shown and run.", "chat:chat"),
    "serve": Leaf("Serve the HTTP API and the console, with a worker beside them.", "serve:serve"),
    "console": Leaf("Print a link into the console of the server that works on this home.", "serve:console"),
    "mcp": Leaf("Serve Ratchet to coding agents as an MCP server.", "serve:mcp"),
    "worker": Leaf("Run jobs until stopped.", "serve:worker"),
    "doctor": Leaf("Check this machine and the ledger, and say how to fix them.", "doctor:doctor"),
    "usage": Leaf("Show what engines used and what it cost, by engine and model and by run.", "runs:usage"),
    "events": Leaf("Show what happened, or follow it as it happens.", "events:events"),
    "engine": Branch(
        "Engines: what proposes changes.",
        {
            "list": Leaf("List the engines and what each can do.", "engine:list_"),
            "check": Leaf("Look whether engines could be used now, and say what is missing.", "engine:check"),
            "login": Leaf("Log in to the account of an agent program.", "engine:login"),
            "record": Leaf(
                "Run one session and keep it as a cassette, to be replayed without a model.", "engine:record"
            ),
        },
        "An engine is whatever proposes a change: a coding agent with a command line, a model, a search "
        "without any model, or a recording. It is named as ENGINE or as ENGINE:OPTION, such as llm:deep.",
    ),
    "agent": Branch(
        "Agents: MCP services that are made from a description and rewrite themselves from feedback.",
        {
            "create": Leaf("Make an agent from a description of what it should do.", "agent_make:create"),
            "list": Leaf("List agents by name.", "agents.operations:list_"),
            "show": Leaf("Show one agent: its version, its address, its last runs.", "agent:show"),
            "tools": Leaf("List the tools of an agent, as it lists them itself.", "agent:tools_"),
            "call": Leaf("Call a tool of an agent and print its answer.", "agent:call"),
            "feedback": Leaf(
                "Tell an agent what was wrong; it learns, or is rewritten.", "agent_make:feedback"
            ),
            "versions": Leaf("List the versions of an agent, newest first.", "agent:versions_"),
            "diff": Leaf("Show what differs between two versions of an agent.", "agent:diff"),
            "certificate": Leaf(
                "Show what a version of an agent was promoted on.", "agents.judge_operations:certificate"
            ),
            "rollback": Leaf("Take an agent back to an earlier version.", "agents.operations:rollback"),
            "promote": Leaf("Let an agent's address lead to this version.", "agents.operations:promote"),
            "pin": Leaf(
                "Hold an agent's address at a version, or let it move again.", "agents.operations:pin"
            ),
            "approve": Leaf(
                "Approve the change of an agent that waits; it is made and promoted.",
                "agents.judge_operations:approve",
            ),
            "refuse": Leaf(
                "Refuse the change of an agent that waits; the current version stays.",
                "agents.judge_operations:refuse",
            ),
            "approval": Leaf(
                "Say when a person is asked before a change of an agent is kept.",
                "agents.judge_operations:approval",
            ),
            "eval": Branch(
                "Evals: calls that every version must answer as you say.",
                {
                    "add": Leaf(
                        "Add a call that every version of an agent must answer as you say.",
                        "agents.judge_operations:add_eval",
                    ),
                    "list": Leaf(
                        "List the evals of an agent, in the order in which they are made.",
                        "agents.judge_operations:list_evals",
                    ),
                    "remove": Leaf(
                        "Remove an eval of an agent: changes are not held to it any more.",
                        "agents.judge_operations:remove_eval",
                    ),
                    "run": Leaf(
                        "Run the evals of an agent against a version, in the sandbox and on a copy of its state.",
                        "agents.judge_operations:run_evals",
                    ),
                    "record": Leaf(
                        "Make an eval of a call that really happened, with the answer that it had.",
                        "agents.judge_operations:record_eval",
                    ),
                },
                "Evals lie in the ledger, where no engine can write, and bind every change of the agent.",
            ),
            "key": Branch(
                "Keys: what lets callers in who hold nothing else.",
                {
                    "add": Leaf(
                        "Make a key for callers of an agent. It is shown this once; only a hash of it is kept.",
                        "agents.access:add_key",
                    ),
                    "list": Leaf(
                        "List the keys of an agent by name, with what they open.", "agents.access:list_keys"
                    ),
                    "revoke": Leaf(
                        "Revoke a key of an agent: the next request with it is refused.",
                        "agents.access:revoke_key",
                    ),
                },
                "A key opens one agent: its tools, its feedback, or all of it.",
            ),
            "egress": Branch(
                "What the servers of an agent may connect to; nothing, if nothing is said.",
                {
                    "add": Leaf(
                        "Allow the servers of an agent to connect to a host; it holds at once.",
                        "agents.access:add_egress",
                    ),
                    "list": Leaf(
                        "List what the servers of an agent may connect to.", "agents.access:list_egress"
                    ),
                    "remove": Leaf(
                        "No longer allow the servers of an agent to connect to a host; open connections stay.",
                        "agents.access:remove_egress",
                    ),
                },
                "Servers reach Ratchet, and what is listed here by a proxy that Ratchet keeps.",
            ),
            "secret": Branch(
                "Secrets that the servers of an agent are given, as variables of their environment.",
                {
                    "set": Leaf(
                        "Give the servers of an agent a secret, as a variable of their environment.",
                        "agents.access:set_secret",
                    ),
                    "list": Leaf("List the names of the secrets of an agent.", "agents.access:list_secrets"),
                    "remove": Leaf("Remove a secret of an agent.", "agents.access:remove_secret"),
                },
                "Secrets are kept encrypted and never shown again.",
            ),
            "calls": Leaf(
                "List the calls that clients made of an agent, newest first, with arguments and answers.",
                "agents.judge_operations:calls",
            ),
            "production": Leaf(
                "Show calls, times and failures of each version of an agent, and what follows from them.",
                "agents.production_operations:production",
            ),
            "incidents": Leaf(
                "List failures and crashes in calls of an agent, in groups, with the input that caused them.",
                "agents.production_operations:incidents",
            ),
            "propose": Leaf(
                "Have an incident fixed: a change that must answer its call, which becomes an eval.",
                "agent_make:propose",
            ),
            "dismiss": Leaf(
                "Dismiss an incident: it is counted on, and starts no change by itself.",
                "agents.production_operations:dismiss",
            ),
            "learn": Leaf(
                "Say whether incidents of an agent start changes by themselves, or when a person asks.",
                "agents.production_operations:learn",
            ),
            "remarks": Leaf(
                "List what callers remarked on an agent by its Tuner, newest first.",
                "agents.production_operations:remarks",
            ),
            "traffic": Leaf(
                "Send a share of the new sessions of an agent to another version, until it is clear which is better.",
                "agents.production_operations:traffic",
            ),
            "watch": Leaf(
                "Run the evals of an agent by a schedule, against the version in use.",
                "agents.production_operations:watch",
            ),
            "logs": Leaf("Show what an agent's servers have logged.", "agent:logs"),
            "export": Leaf("Write an agent into a folder that runs without Ratchet.", "agent:export"),
            "state": Leaf("Show an agent's state, its history, or bring an earlier one back.", "agent:state"),
            "delete": Leaf("Delete an agent; its name is free again.", "agents.operations:delete"),
        },
        "Each agent is a pair of MCP servers at an address that stays the same: a Runner with its tools, "
        "and a Tuner that takes feedback. `ratchet agent create` makes one, `ratchet agent call` uses it, "
        "and `ratchet agent feedback` has it rewritten; only what passes its tests becomes the next "
        "version.",
    ),
    "research": Branch(
        "Research: improve a recipe under real measurement.",
        {
            "new": Leaf("Make a folder with a small task to begin with.", "research_task:new"),
            "check": Leaf("Check a task before money is spent on it.", "research_task:check_"),
            "tasks": Leaf("List the tasks that are installed.", "research_task:tasks_"),
            "compare": Leaf(
                "Compare strategies at equal budgets, and with the plain baselines.", "research:compare"
            ),
            "run": Leaf("Improve a recipe under measurement until a stop is reached.", "research:run"),
            "resume": Leaf(
                "Resume a run that was paused, blocked or cut off, here and now.", "research:resume"
            ),
            "pause": Leaf(
                "Pause a research run; trials in flight are measured again when it is resumed.",
                "research.operations:pause",
            ),
            "stop": Leaf("End a research run for good; what was kept stays.", "research.operations:stop"),
            "status": Leaf(
                "Show the progress of a run: the best, the specialists, what is in flight.",
                "research:status_",
            ),
            "list": Leaf("List research runs, newest first.", "research.operations:list_"),
            "leaderboard": Leaf("Show what was kept, the best first.", "research:leaderboard_"),
            "tree": Leaf(
                "Show the ancestors and descendants of a trial; of the best, if none is named.",
                "research:tree_",
            ),
            "knowledge": Leaf(
                "Show the lineage of the best, what happened last, and lessons.", "research:knowledge_"
            ),
            "activity": Leaf("Show the last trials.", "research:activity_"),
            "misses": Leaf("Show what was nearly kept, and why it was not.", "research:misses_"),
            "yield": Leaf("Show what each specialist has brought.", "research:yields_"),
            "cost": Leaf("Show what a run has cost.", "research:cost_"),
            "lessons": Leaf("Show what specialists have learned.", "research:lessons_"),
            "trial": Leaf("Show one trial: its measurements, its certificate, its diff.", "research:trial"),
            "verify": Leaf(
                "Check the certificate of a kept trial: its decision, its signature, its row in the ledger.",
                "research:verify",
            ),
            "report": Leaf(
                "Write a page with the scores, the tree and the evidence of a run, to be opened anywhere.",
                "research:report_",
            ),
            "import": Leaf(
                "Take over a run of the original system as a record of its trials.",
                "research_exchange:import_",
            ),
            "export": Leaf("Write a run in the files of the original system.", "research_exchange:export"),
        },
        "A task is a recipe and an evaluator that measures it. `ratchet research new` makes one to begin "
        "with, `ratchet research check` tries it, and `ratchet research run` improves its recipe trial by "
        "trial. A RUN is named by its number or its name.",
    ),
    "workflow": Branch(
        "Workflows: plans that run as DAGs, each step in a process of its own.",
        {
            "new": Leaf("Have an overseer plan a workflow from a sentence.", "workflow_run:new"),
            "validate": Leaf("Check a workflow and report everything that is wrong.", "workflow:validate"),
            "fill": Leaf("Have the tools written that a workflow asks for.", "workflow_run:fill"),
            "plan": Leaf("Show what a workflow would do, and what can run at once.", "workflow:plan"),
            "run": Leaf("Run a workflow and print its outputs.", "workflow_run:run"),
            "show": Leaf("Show a saved workflow, or a run of one.", "workflow:show"),
            "list": Leaf("List the saved workflows and the last runs.", "workflow:list_"),
            "save": Leaf("Keep a workflow under its name, to be run by it.", "workflow:save"),
            "delete": Leaf("Delete a saved workflow; what it has run stays.", "workflows.operations:delete"),
            "profile": Leaf(
                "Show where the time of a workflow goes, and what to improve first.",
                "workflow:profile",
            ),
            "evolve": Leaf(
                "Have a tool rewritten, and keep it only if it proves better.", "workflow_run:evolve"
            ),
            "export": Leaf("Write a workflow as a folder that runs without Ratchet.", "workflow_run:export"),
            "schedule": Leaf("Run a workflow on a schedule.", "workflow_schedule:schedule"),
        },
        "A workflow is a file of YAML or JSON, or is saved under a name. `ratchet workflow new` has one "
        "planned, `ratchet workflow validate` and `plan` look at one without running it, and `ratchet "
        "workflow run` runs it.",
    ),
    "tool": Branch(
        "Tools: what the steps of a workflow call.",
        {
            "list": Leaf("List tools by name.", "tool:list_"),
            "show": Leaf("Show one tool: what it takes, what it answers, how it has done.", "tool:show"),
            "search": Leaf("Find tools for a task, and say why each was chosen.", "tool:search"),
            "run": Leaf("Call a tool and print its answer.", "tool:run"),
            "test": Leaf("Run the examples of a tool as tests.", "tool:test"),
            "add": Leaf("Add a tool from its definition, or a new version of it.", "tool:add"),
            "versions": Leaf("List the versions of a tool, newest first.", "tools.operations:versions"),
            "pin": Leaf("Hold a tool at a version.", "tools.operations:pin"),
            "unpin": Leaf("Let a tool follow its newest version again.", "tools.operations:unpin"),
            "rollback": Leaf("Take a tool back to the version before.", "workflows.tool_operations:rollback"),
            "approve": Leaf(
                "Take a version that was better but answers some input differently.",
                "workflows.tool_operations:approve",
            ),
            "certificate": Leaf(
                "Show what a version of a tool was promoted on.", "workflows.tool_operations:certificate"
            ),
            "score": Leaf("Say how good the answer of a step was.", "tools.operations:score"),
            "feedback": Leaf("Say how well a tool has served.", "tools.operations:feedback"),
        },
        "A tool is a definition in YAML or JSON with a version: code, a program, a model with a prompt, "
        "an HTTP interface, a tool of an MCP server. `ratchet tool search` finds one, and `ratchet tool "
        "run` calls it.",
    ),
    "project": Branch(
        "Projects: the git repositories that protocols work on.",
        {
            "add": Leaf("Register a repository as a project, and set it up.", "project_make:add"),
            "list": Leaf("List projects, newest first.", "project_look:list_"),
            "show": Leaf(
                "Show one project: where it is, its checks, and the progress of its onboarding.",
                "project_look:show",
            ),
            "onboard": Leaf(
                "Set a project up: resume where that is blocked, or look at the repository again.",
                "project_make:onboard",
            ),
            "setup": Leaf("Show how a project is set up, and make its environment.", "project_change:setup"),
            "checks": Leaf(
                "Show which checks decide about a change of a project, or change them.",
                "project_change:checks",
            ),
            "questions": Leaf(
                "List what is asked about a project and its protocols.", "project_look:questions"
            ),
            "answer": Leaf(
                "Answer a question about a project or its protocols; what waited for it is resumed.",
                "project_change:answer",
            ),
            "secrets": Leaf(
                "Show which secrets a project has, set one, or remove one.", "project_change:secrets"
            ),
            "branches": Leaf(
                "List the branches that the remote of a project has now.", "project_look:branches"
            ),
            "delete-branch": Leaf(
                "Delete a branch of the remote of a project.", "project_change:delete_branch"
            ),
            "import-codemachine": Leaf(
                "Make a protocol of a CodeMachine workspace.", "project_make:import_codemachine"
            ),
            "archive": Leaf(
                "Put a project away: nothing of it is lost, and it takes no new protocols.",
                "project_change:archive",
            ),
        },
        "Begin with `ratchet project add` in a repository; it is set up then, and questions that only "
        "people can answer are listed by `ratchet project questions`. A PROJECT is named by its number or "
        "its name.",
    ),
    "protocol": Branch(
        "Protocols: planned changes of a repository, each step judged before it is kept.",
        {
            "new": Leaf(
                "Make a protocol: a change of a repository, to be planned and carried out step by step.",
                "protocol_act:new",
            ),
            "list": Leaf("List protocols, newest first.", "protocol_look:list_"),
            "show": Leaf(
                "Show one protocol: its steps, why it waits, and the command to type next.",
                "protocol_look:show",
            ),
            "start": Leaf("Plan a protocol, or carry out the plan that it has.", "protocol_act:start"),
            "pause": Leaf("Pause a protocol; what is recorded stays.", "protocols.operations:pause"),
            "resume": Leaf(
                "Resume a protocol that was paused, blocked or cut off, here and now.",
                "protocol_act:resume",
            ),
            "cancel": Leaf(
                "Cancel a protocol for good, with every step that has not ended.",
                "protocols.operations:cancel",
            ),
            "run-next": Leaf(
                "Run the first step that waits, is blocked or has failed.", "protocol_act:run_next"
            ),
            "retry": Leaf("Try the last step that failed or is blocked once more.", "protocol_act:retry"),
            "open-pr": Leaf(
                "Push the branch of a protocol and open its pull request.", "protocol_act:open_pr"
            ),
            "log": Leaf("Print what was said and done in the attempts of a protocol.", "protocol_look:log"),
        },
        '`ratchet protocol new "WHAT TO DO" --run` does everything; `ratchet protocol show` shows its '
        "progress and which command to type next. A PROTOCOL is named by its number, or by its name such as "
        "0007-add-login.",
    ),
    "step": Branch(
        "Steps of protocols.",
        {
            "list": Leaf("List the steps of a protocol, in their order.", "step:list_"),
            "show": Leaf("Show one step with its attempts.", "step:show"),
            "run": Leaf(
                "Run one step now: a pending one, or once more one that is blocked or has failed.", "step:run"
            ),
            "qa": Leaf(
                "Have the newest commit of a step judged once more, without a new session of its author.",
                "step:qa",
            ),
            "approve": Leaf(
                "Complete a step in the place of its judges, with the newest commit that its author made.",
                "step:approve",
            ),
        },
        "A STEP is named by its number, or as PROTOCOL/NN. For steps that need a person: run one again, "
        "have it judged again, or complete it in the place of its judges.",
    ),
    "spec": Branch(
        "Specs: what protocols are to do, as data.",
        {
            "validate": Leaf("Check a spec and report everything that is wrong.", "spec:validate"),
            "audit": Leaf(
                "Check the specs of protocols against what is in their repositories.", "spec:audit"
            ),
            "schema": Leaf("Print the JSON Schema of specs.", "spec:schema"),
        },
        "A spec has the steps of a protocol with their engines, their checks and their policies. It is "
        "made when a protocol is planned, and never changed afterwards.",
    ),
    "memory": Branch(
        "Lessons, tools and past work, found by meaning.",
        {
            "store": Leaf("Remember a text.", "memory:store"),
            "find": Leaf("Find what means most nearly the same, or has the same words.", "memory:find"),
            "list": Leaf("List what is remembered, newest first.", "memory:list_"),
            "delete": Leaf("Forget one entry, or all that fit.", "memory:delete"),
            "reembed": Leaf("Re-embed every entry, after the embedder has changed.", "memory:reembed"),
        },
        "What was learned is found again by its meaning. It is kept in the home, or on a Qdrant server if "
        "the settings say so.",
    ),
    "runs": Branch(
        "Runs and their steps.",
        {
            "list": Leaf("List runs, newest first.", "runtime.operations.runs:list_"),
            "show": Leaf("Show one run: its status, the reason for it, and its result.", "runs:show"),
            "pause": Leaf("Pause a run; what it has recorded stays.", "runtime.operations.runs:pause"),
            "resume": Leaf("Resume a paused or blocked run.", "runs:resume"),
            "cancel": Leaf(
                "Cancel a run for good, with all its unfinished steps.", "runtime.operations.runs:cancel"
            ),
        },
        "A run is one execution of anything, and a step is a part of it. Flows have commands of their own "
        "that say more, such as `ratchet protocol show` and `ratchet research status`.",
    ),
    "approval": Branch(
        "Questions that wait for a person.",
        {
            "list": Leaf("List what waits for a person, newest first.", "runtime.operations.approvals:list_"),
            "show": Leaf(
                "Show one approval with what is to be decided on.", "runtime.operations.approvals:show"
            ),
            "approve": Leaf(
                "Say yes, or give the answer that is asked for; a run that waited for it is resumed.",
                "runs:approve",
            ),
            "refuse": Leaf(
                "Say no; a run that waited for it is resumed without the change.",
                "runs:refuse",
            ),
        },
        "A run that needs a person is blocked until it is decided. `ratchet approval list` has what is open.",
    ),
    "queue": Branch(
        "Queues and the jobs in them.",
        {
            "list": Leaf("List queues and how many jobs they hold.", "runtime.operations.jobs:list_"),
            "jobs": Leaf("List jobs, newest first.", "runtime.operations.jobs:jobs"),
            "show": Leaf("Show one job with the tries that failed.", "runtime.operations.jobs:show"),
            "cancel": Leaf("Cancel a job; a running one is asked to stop.", "runtime.operations.jobs:cancel"),
            "pause": Leaf("Pause a queue; running jobs continue.", "runtime.operations.jobs:pause"),
            "resume": Leaf("Resume a paused queue.", "runtime.operations.jobs:resume"),
        },
        "Whatever is left to a worker is a job in a queue. `ratchet worker` and `ratchet serve` take "
        "jobs; `ratchet processes` lists who does.",
    ),
    "schedule": Branch(
        "Jobs that start on a schedule.",
        {
            "list": Leaf("List schedules with their next time.", "runtime.operations.schedules:list_"),
            "show": Leaf("Show one schedule and its next times.", "runtime.operations.schedules:show"),
            "add": Leaf("Make or replace a schedule.", "workflow_schedule:add"),
            "next": Leaf(
                "Show the next times of a schedule, or of a time as it is said.", "workflow_schedule:next_"
            ),
            "pause": Leaf("Pause a schedule.", "runtime.operations.schedules:pause"),
            "resume": Leaf("Resume a paused schedule.", "runtime.operations.schedules:resume"),
            "remove": Leaf("Remove a schedule.", "runtime.operations.schedules:remove"),
        },
        "A schedule makes a job whenever its time comes, as long as a worker runs. `ratchet workflow "
        "schedule` is the simple way for workflows.",
    ),
    "trigger": Branch(
        "Triggers: runs of workflows by messages from outside.",
        {
            "list": Leaf("List triggers by name, with how they are.", "workflows.triggers:list_"),
            "show": Leaf(
                "Show one trigger: where its messages come from, and how it goes.", "workflows.triggers:show"
            ),
            "add": Leaf("Have a workflow run for each message that comes.", "workflows.triggers:add"),
            "pause": Leaf(
                "Pause a trigger: its messages wait where they are, and webhooks are answered with 409.",
                "workflows.triggers:pause",
            ),
            "resume": Leaf(
                "Resume a paused trigger with the messages that have waited.", "workflows.triggers:resume"
            ),
            "remove": Leaf(
                "Remove a trigger. Runs that it has started stay as they are.", "workflows.triggers:remove"
            ),
        },
        "Each message of Redis streams or AMQP, each signed request and each file that appears "
        "starts one run, as long as a worker runs. For the clock there are schedules.",
    ),
    "nodes": Leaf(
        "List the machines on which processes work, and the nodes of their cluster.",
        "runtime.operations.jobs:nodes",
    ),
    "processes": Leaf("List the servers and workers on this ledger.", "runtime.operations.jobs:processes"),
    "backup": Leaf(
        "Add a backup of the ledger and its home to a directory, which stores only what is new.",
        "ledger:backup_home",
    ),
    "restore": Leaf("Put a backup in the place of the ledger and of its home.", "ledger:restore"),
    "ledger": Branch(
        "The database and the files beside it.",
        {
            "backup": Leaf("Write a backup of the ledger and its home to a file.", "ledger:backup"),
            "restore": Leaf("Put a backup in the place of the ledger and of its home.", "ledger:restore"),
            "check": Leaf("Check ledger, artifacts, repositories and keys for damage.", "ledger:check"),
            "vacuum": Leaf("Remove what the rules no longer keep, and shrink the file.", "ledger:vacuum"),
        },
        "The ledger is where everything is recorded: one SQLite file in the home, or a PostgreSQL "
        "database. Artifacts are files beside it.",
    ),
    "config": Branch(
        "Settings and where they come from.",
        {
            "show": Leaf("Show every setting, its value and its source.", "config:show"),
            "path": Leaf("Print the path of ratchet.toml.", "config:path"),
        },
        "Settings come from ratchet.toml in the home, from RATCHET_* variables and from the command line; "
        "the later is the stronger.",
    ),
    "dev": Branch(
        "Tools for developing with Ratchet.",
        {
            "model-server": Leaf(
                "Serve scripted models to real agents, without a network or a key.", "dev:model_server"
            ),
            "reference": Leaf(
                "Rewrite the reference of commands, API and settings from the code.",
                "dev:reference",
            ),
        },
        "For those who write engines, tools or agents, or who work on Ratchet itself.",
    ),
    "completion": Leaf("Print the completion script of a shell.", "man:completion"),
    "man": Leaf("Print the manual page of a command.", "man:man"),
}
