"""What went wrong with a workflow, what mended it, and what somebody learned: shown to whoever plans the next one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.memory import Entry, Memory
from ratchet.workflows.remembering.places import scope_of, tags_of
from ratchet.workflows.remembering.sentences import mark_of, plain, shared_words

FAILURE, FIX, LESSON = "failure", "fix", "lesson"
_KINDS = (FAILURE, FIX, LESSON)
# Below this, two texts have nothing to do with each other.
_NEAR = 0.4
_SHARED = 0.3
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Lesson:
    """`kind` is failure, fix or lesson. `step` is what failed, `problem` what was wrong, `fix` what mended it."""

    id: str
    kind: str
    sentence: str
    step: str | None
    problem: str
    fix: str
    workflow: str | None
    likeness: float

    @property
    def told(self) -> str:
        """The lesson for a person or a model."""
        where = f" at {self.step}" if self.step else ""
        match self.kind:
            case "failure":
                return f"“{self.sentence[:200]}” failed{where}: {self.problem}"
            case "fix":
                return f"“{self.sentence[:200]}” failed{where}: {self.problem} What mended it: {self.fix}"
        return self.fix


def remember_failure(
    memory: Memory,
    *,
    run_id: int,
    sentence: str,
    step: str,
    reason: str,
    workflow: str | None = None,
    tags: Iterable[str] = (),
) -> str:
    """Remember that a run failed at a step, once however often it is told."""
    return _remember(
        memory,
        FAILURE,
        f"{run_id}:{step}",
        sentence=sentence,
        step=step,
        problem=reason,
        fix="",
        workflow=workflow,
        tags=tags,
    )


def remember_fix(
    memory: Memory,
    *,
    run_id: int,
    sentence: str,
    step: str,
    problem: str,
    fix: str,
    workflow: str | None = None,
    tags: Iterable[str] = (),
) -> str:
    """Remember what mended something that had failed at a step of a run."""
    return _remember(
        memory,
        FIX,
        f"{run_id}:{step}",
        sentence=sentence,
        step=step,
        problem=problem,
        fix=fix,
        workflow=workflow,
        tags=tags,
    )


def remember_lesson(
    memory: Memory, name: str, text: str, *, workflow: str | None = None, tags: Iterable[str] = ()
) -> str:
    """Remember what somebody learned under a name; the same name again replaces it."""
    data = {"sentence": "", "step": None, "problem": "", "fix": _cut(text), "workflow": workflow}
    return memory.store(
        _cut(text),
        kind=LESSON,
        tags=tags_of(tags),
        data=data,
        scope=None if workflow is None else scope_of(workflow),
        key=f"{LESSON}:{mark_of(name)}",
    )


def lessons_for(memory: Memory, sentence: str, *, limit: int = 5) -> list[Lesson]:
    """What earlier work has to say about this sentence, nearest first: by meaning, or else by the words they share."""
    found = [
        _lesson(each.entry, each.likeness)
        for kind in _KINDS
        for each in memory.find(plain(sentence), kind=kind, limit=limit)
        if each.likeness >= _NEAR
    ]
    if not found:
        # What is said about a sentence may be so long that the meaning of the whole is another one.
        found = [
            _lesson(each.entry, shared)
            for kind in _KINDS
            for each in memory.words(plain(sentence), kind=kind, limit=limit)
            if (shared := shared_words(sentence, each.entry.text.partition("\n")[0])) >= _SHARED
        ]
    return sorted(found, key=lambda each: -each.likeness)[:limit]


def _remember(
    memory: Memory,
    kind: str,
    name: str,
    *,
    sentence: str,
    step: str,
    problem: str,
    fix: str,
    workflow: str | None,
    tags: Iterable[str],
) -> str:
    short = _cut(plain(sentence))
    data = {
        "sentence": short,
        "step": step,
        "problem": _cut(problem),
        "fix": _cut(fix),
        "workflow": workflow,
    }
    return memory.store(
        f"{short}\n{_cut(problem)}",
        kind=kind,
        tags=tags_of(tags),
        data=data,
        scope=None if workflow is None else scope_of(workflow),
        # Several ledgers may share a memory, so a run's number alone says too little.
        key=f"{kind}:{mark_of(f'{name} {sentence}')}",
    )


def _lesson(entry: Entry, likeness: float) -> Lesson:
    data = entry.data
    return Lesson(
        entry.id,
        entry.kind,
        str(data.get("sentence") or ""),
        data.get("step"),
        str(data.get("problem") or ""),
        # A lesson that a person stored by hand has nothing but its text.
        str(data.get("fix") or (entry.text if entry.kind == LESSON else "")),
        data.get("workflow"),
        likeness,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
