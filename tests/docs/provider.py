"""A scripted model that is good enough for the four lines of the README, behind one key.

Real are Ratchet, the Codex CLI, git, the sandbox and the HTTP between them. Only the model is played: it looks at what
it is asked and at how far the conversation is, as a provider does that knows nothing of its clients.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.modelserver import Turn, answer, call, call_mcp, say
from tests.agents.specimens import files
from tests.protocols.planning.plans import plan, step

KEY = "sk-of-a-reader"
_HYPOTHESIS = "a hexagonal stagger with polished radii wastes less room between rows"
_PAGE = "def login(name, password):\n    return bool(name and password)\n"
_TEST = "from login import login\n\n\ndef test_login():\n    assert login('ada', 'x')\n    assert not login('', '')\n"


def reply(body: Mapping[str, Any]) -> Turn:
    """What the model says next."""
    said = json.dumps(body, ensure_ascii=False)
    done = said.count('_call_output"')
    if '"workflow_id"' in said:
        return answer(_WORKFLOW)
    if "Summarise this text" in said:
        # The text itself, not the name of its file.
        return say("It adds up." if "A shop that adds prices up." in said else "There is no text here.")
    if "Translate this into German" in said:
        return say("Ein Laden, der Preise addiert." if "It adds up." in said else "Hier ist kein Text.")
    if "You are one of several specialists" in said:
        return _research(done)
    if '"plan_md"' in said:
        return answer(
            plan(
                step("01-login.md", "# Login\n\nWrite login.py with tests.\n"),
            )
        )
    if '"findings"' in said:
        return answer({"verdict": "pass", "summary": "It does what the step asks for.", "findings": []})
    if "canary.json" in said:
        summary = {"summary": "A greeter that greets people by name.", "refused": None}
        return answer(summary) if done else _write(files(greeting="hello"))
    if "login.py with tests" in said:
        return say("Done.") if done else _write({"login.py": _PAGE, "test_login.py": _TEST})
    return say("Done.") if done else _write({"LOGIN.md": "# Login\n\nCall `login(name, password)`.\n"})


def _research(done: int) -> Turn:
    # One more step than the best has: each trial is another one.
    more = r"re.sub(r'(?m)^STEPS = (\d+)', lambda m: f'STEPS = {int(m[1]) + 3}', open('recipe.py').read())"
    edit = f"""python3 -c "import re; text = {more}; open('recipe.py', 'w').write(text)\""""
    turns = [
        call("exec_command", cmd=edit),
        call_mcp("ratchet", "submit_trial", hypothesis=_HYPOTHESIS, expected_delta=0.1),
    ]
    return turns[done] if done < len(turns) else say("Polished radii are worth more than the first layout.")


def _write(content: Mapping[str, str]) -> Turn:
    return call(
        "exec_command", cmd="\n".join(f"cat > {name} <<'END'\n{text}END" for name, text in content.items())
    )


def _step(name: str, prompt: str, **inputs: str) -> dict[str, Any]:
    return {
        "step_id": name,
        "type": "llm_call",
        "description": prompt,
        "tool": None,
        "prompt_template": prompt,
        "generate_tool": False,
        "operation_type": None,
        "input_mapping": [{"name": key, "value": value} for key, value in inputs.items()],
        "output_name": name,
        "depends_on": [],
        "when": None,
        "for_each": None,
    }


_WORKFLOW = {
    "workflow_id": "summarise_in_german",
    "description": "Summarises a text and translates the summary into German.",
    "inputs": [
        {
            "name": "text",
            "type": "string",
            "required": True,
            "default": None,
            "description": "what to summarise",
        }
    ],
    "outputs": [
        {
            "name": "summary",
            "type": "string",
            "source_reference": "steps.translate.translate",
            "description": "the summary in German",
        }
    ],
    "steps": [
        _step("summarise", "Summarise this text in one sentence: {text}", text="inputs.text"),
        _step("translate", "Translate this into German: {text}", text="steps.summarise.summarise"),
    ],
}
