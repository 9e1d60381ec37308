"""What the memory holds of workflows: plans, what failed, what fixed it, and lessons for the next plan."""

from __future__ import annotations

import contextlib
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.flowkit.execution import Executed
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import shortened
from ratchet.ledger import Run
from ratchet.ledger.workflows import get_workflow, remove_workflow
from ratchet.memory import Memory, MemoryEntry, MemoryFault, open_memory
from ratchet.memory.embedders import folded, query_words
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime

KIND = "plan"
_FIELDS = {"sentence", "workflow", "hash"}
_MOST_TAGS = 50
_LONGEST_TAG = 200
# A figure, what stands in quotes, or a word that begins with a capital letter.
_QUOTED = re.compile(r"\"([^\"]{1,200})\"|“([^”]{1,200})”|`([^`]{1,200})`|(?<!\w)'([^']{1,200})'(?!\w)")
_FIGURE = re.compile(r"(?<![\w-])-\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*|[½⅓⅔¼¾⅕⅛⅜⅝⅞²³]")
_NAME = re.compile(r"[^\W\d_]\w*")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# Behind a figure, an exclamation mark is a factorial.
_STOP = re.compile(r"[ .…]*(?:(?<!\d)[ .!…]+)?$")
_BEGINNING = re.compile(r"(?:^|[.!?:;]\s+)[^\w]*\w+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AMOUNTS = _words(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half third
    quarter fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth
    seventeenth eighteenth nineteenth twentieth once twice thrice all every both each any some
    """
)
# In the languages that are likely; the opposite in another one is still asked about.
_NEGATIONS = _words(
    """
    not no never none nothing neither nor without except excluding unless cannot avoid skip ignore but lacking hardly
    dont doesnt didnt isnt arent wont cant shouldnt mustnt nicht kein keine keinen keiner nie niemals ohne außer ne pas
    jamais sans aucun sin nunca ningún non senza mai nessun nessuna não nao nem sem nunca geen niet nooit zonder bez
    inte inga ingen ej utan ikke ingen uden uten не нет без никогда ни
    """
)
# Chinese and Japanese do not put blanks between words.
_NEGATION_SIGNS = ("不", "别", "勿", "没", "无", "未", "ない", "ません", "なし", "않", "안 ", "없")
# Of each row a sentence means one: two that name different ones ask for different things.
_EXCLUSIVE = tuple(
    {word: column for column, words in enumerate(row.split("/")) for word in words.split()}
    for row in (
        "ascending / descending",
        "first earliest oldest / last latest newest",
        "before / after",
        "least minimum min smallest lowest shortest fewest / most maximum max largest biggest highest longest",
        "more above over exceeding / less fewer below under",
        "up upper uppercase capital capitals / down lower lowercase small",
        "start begin / stop end cease quit",
        "keep retain leave / remove delete drop discard erase",
        "include including with / exclude without",
        "accept allow permit approve / refuse deny reject forbid",
        "encrypt encode compress pack zip / decrypt decode decompress unpack unzip",
        "increase raise grow add plus / decrease reduce shrink subtract minus",
        "import load read / export save write",
        "left / right",
        "enable / disable",
        "sorted / unsorted",
        "english / german / french / spanish / italian / portuguese / dutch / polish / russian / chinese / japanese / "
        "korean / turkish / arabic / swedish / danish / norwegian / finnish / greek / czech / hindi / hebrew / latin",
        "km kilometers kilometres / m meters metres / cm / mm / miles mi / feet ft / inches / yards",
        "kg kilograms / g grams / mg / pounds lb lbs / ounces oz / tons tonnes",
        "celsius / fahrenheit / kelvin",
        "seconds second / minutes minute / hours hour / days day / weeks week / months month / years year",
        "daily / weekly / monthly / yearly / hourly",
        "euro euros eur / dollar dollars usd / pound gbp / yen jpy / franc francs chf",
        "words word / letters letter characters / lines line / sentences sentence / paragraphs paragraph / pages page",
        "json / csv / yaml / xml / html / markdown / pdf / toml",
    )
)
_PREFIXES = ("non-", "non", "un", "in", "dis", "im", "anti-")
# Below this, two texts have nothing to do with each other.
_NEAR = 0.4
_SHARED = 0.3
_LONGEST = 2000
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class RememberedPlan:
    """`hash` is that of what was saved. `likeness` is 1 for the very sentence (`exact`), else that of the meanings."""

    id: str
    sentence: str
    workflow: str
    hash: str
    likeness: float
    exact: bool


def remember_plan(
    memory: Memory, sentence: str, workflow: str, hash: str, *, tags: Iterable[str] = ()
) -> str:
    """Remember which workflow a sentence led to. A sentence has one plan: the last one that was made for it.

    The hash distinguishes it from another workflow of the same name: several ledgers may share a memory.
    """
    mark = mark_of(sentence)
    return memory.store(
        plain(sentence),
        kind=KIND,
        tags=tags_of([_mark_tag(mark), *tags]),
        data={"sentence": plain(sentence), "workflow": workflow, "hash": hash},
        scope=scope_of(workflow),
        key=f"{KIND}:{mark}",
    )


def find_plans(memory: Memory, sentence: str, *, limit: int = 5) -> list[RememberedPlan]:
    """Remembered plans, likest first. The one of the very sentence comes before all others."""
    exact = memory.entries(kind=KIND, tags=[_mark_tag(mark_of(sentence))], limit=1)
    known = {entry.id for entry in exact}
    similar = [
        (found.entry, found.likeness)
        for found in memory.find(plain(sentence), kind=KIND, limit=limit)
        if found.entry.id not in known
    ]
    # What a person stored by hand under this kind leads to no workflow.
    return [
        _remembered(entry, likeness, exact=entry.id in known)
        for entry, likeness in [*((entry, 1.0) for entry in exact), *similar][:limit]
        if entry.data.keys() >= _FIELDS
    ]


def _mark_tag(mark: str) -> str:
    return f"sentence:{mark}"


def _remembered(entry: MemoryEntry, likeness: float, *, exact: bool) -> RememberedPlan:
    fields = {name: str(entry.data[name]) for name in _FIELDS}
    return RememberedPlan(id=entry.id, likeness=likeness, exact=exact, **fields)


def scope_of(workflow: str) -> str:
    """The scope of all that belongs to one workflow, and goes with it."""
    return f"workflow:{workflow}"


def tags_of(tags: Iterable[str]) -> frozenset[str]:
    """As many of these tags as an entry can have; a tag that is blank or too long is none."""
    fit = [tag for tag in dict.fromkeys(tags) if tag.strip() and len(tag) <= _LONGEST_TAG]
    return frozenset(fit[:_MOST_TAGS])


def plain(sentence: str) -> str:
    """The sentence with single spaces."""
    return " ".join(sentence.split())


def mark_of(sentence: str) -> str:
    """The same for the same sentence, however it is spaced outside of quotes and with or without a full stop."""
    spaced = sentence.strip() if _QUOTED.search(sentence) else plain(sentence)
    text = _STOP.sub("", unicodedata.normalize("NFC", spaced))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def particulars(sentence: str) -> frozenset[str]:
    """Figures, quoted texts and names: by these, sentences that mean nearly the same may ask for something else.

    A word at the beginning of a sentence is no name: it has its capital letter for another reason.
    """
    text = plain(sentence)
    quoted = {next(part for part in found if part) for found in _QUOTED.findall(text)}
    figures = set(_FIGURE.findall(text))
    inner = _BEGINNING.sub(" ", text)
    names = {word for word in _NAME.findall(inner) if word[0].isupper()}
    return frozenset(folded(each) for each in quoted | figures | names)


def decisive_words(sentence: str) -> list[str]:
    """The words by which a sentence says that something is not to be, and the amounts that it spells out."""
    words = [folded(word).replace("’", "'") for word in _WORD.findall(plain(sentence))]
    text = plain(sentence)
    return sorted(
        [
            *("not" if word.endswith("n't") else word for word in words if _decides(word)),
            *(sign.strip() for sign in _NEGATION_SIGNS for _ in range(text.count(sign))),
        ]
    )


def _decides(word: str) -> bool:
    return word in _NEGATIONS or word in _AMOUNTS or word.endswith("n't")


def differ_in(one: str, other: str) -> str | None:
    """A particular of one sentence that the other does not have: a name, a figure, an amount, a negation, or a word
    whose opposite the other has."""
    words = Counter(decisive_words(one)), Counter(decisive_words(other))
    if odd := sorted({*(words[0] - words[1]), *(words[1] - words[0])}):
        return odd[0]
    if odd := _opposed(one, other) or _opposed(other, one):
        return odd[0]
    for here, there in ((one, other), (other, one)):
        text = folded(plain(there))
        for each in sorted(particulars(here)):
            if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text) is None:
                return each
    return None


def _opposed(one: str, other: str) -> list[str]:
    """Words of the first sentence that the second has with a prefix of denial, or whose opposite it has instead."""
    here, there = ([folded(word) for word in _HYPHENATED.findall(plain(each))] for each in (one, other))
    denied = {prefix + word for word in here for prefix in _PREFIXES} & {*there} - {*here}
    odd = [word for word in here if any(prefix + word in denied for prefix in _PREFIXES)]
    for meant in _EXCLUSIVE:
        means = [Counter(meant[word] for word in words if word in meant) for words in (here, there)]
        if all(means) and means[0] != means[1]:
            odd += [word for word in here if word in meant]
    return sorted(odd)


def shared_words(one: str, other: str) -> float:
    """How many of their words two sentences share, from 0 to 1 (Jaccard)."""
    here, there = ({folded(word) for word in query_words(each)} for each in (one, other))
    return len(here & there) / len(here | there) if here | there else 0.0


FAILURE, FIX, LESSON = "failure", "fix", "lesson"
_KINDS = (FAILURE, FIX, LESSON)


@dataclass(frozen=True, slots=True)
class WorkflowLesson:
    """`kind` is failure, fix or lesson. `step` is what failed, `problem` what was wrong, `fix` what fixed it."""

    id: str
    kind: str
    sentence: str
    step: str | None
    problem: str
    fix: str
    workflow: str | None
    likeness: float

    @property
    def text(self) -> str:
        """The lesson for a person or a model."""
        where = f" at {self.step}" if self.step else ""
        match self.kind:
            case "failure":
                return f"“{self.sentence[:200]}” failed{where}: {self.problem}"
            case "fix":
                return f"“{self.sentence[:200]}” failed{where}: {self.problem} What fixed it: {self.fix}"
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
    """Remember that a run failed at a step, once however often it is reported."""
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
    """Remember what fixed something that had failed at a step of a run."""
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
    """Remember a lesson under a name; the same name again replaces it."""
    data = {"sentence": "", "step": None, "problem": "", "fix": _cut(text), "workflow": workflow}
    return memory.store(
        _cut(text),
        kind=LESSON,
        tags=tags_of(tags),
        data=data,
        scope=None if workflow is None else scope_of(workflow),
        key=f"{LESSON}:{mark_of(name)}",
    )


def lessons_for(memory: Memory, sentence: str, *, limit: int = 5) -> list[WorkflowLesson]:
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


def _lesson(entry: MemoryEntry, likeness: float) -> WorkflowLesson:
    data = entry.data
    return WorkflowLesson(
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
    return shortened(text, _LONGEST)


def remember_failed_run(runtime: Runtime, run: Run, spec: WorkflowSpec, done: Executed) -> None:
    """Remember the first step that failed and why. A simulated run teaches nothing."""
    failed = [(name, each.error) for name, each in done.steps.items() if each.status == "failed"]
    if run.simulated or not failed:
        return
    step, error = failed[0]
    try:
        with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
            remember_failure(
                memory,
                run_id=run.id,
                sentence=spec.description or spec.workflow_id,
                step=step,
                reason=error or "no reason is known",
                workflow=spec.workflow_id,
                tags=spec.tags,
            )
    except MemoryFault as fault:
        # The run has failed either way; what is lost is advice for the next plan.
        _log.warning("a failed run is not remembered", run_id=run.id, error=str(fault))


def forget_workflow(memory: Memory, name: str) -> int:
    """Forget every plan, failure, fix and lesson of a workflow, and say how many."""
    return memory.delete(scope=scope_of(name))


def delete_workflow(
    runtime: Runtime, name: str, *, actor: str = "ratchet", request_id: str | None = None
) -> int:
    """Delete a saved workflow with all that is remembered of it; how many entries that were. Raises `NotFound`.

    The memory comes first: a process that dies in between leaves a workflow that can be deleted again, but never the
    memory of one that is gone.
    """
    with runtime.ledger.read() as tx:
        get_workflow(tx, name)
    with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
        forgotten = forget_workflow(memory, name)
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        remove_workflow(tx, name)
    return forgotten
