"""Small CodeMachine workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PLAIN = {
    ".codemachine/config/main.agents.js": """\
export default [
  {"id": "plan", "promptPath": "prompts/plan.md", "engineId": "codex", "model": "m", "moduleId": "iteration-checker"},
  {"id": "build", "promptPath": "prompts/build.md"}
];
""",
    ".codemachine/config/modules.js": """\
export default [
  {"id": "iteration-checker", "behavior": {"type": "loop", "action": "stepBack", "stepBack": 1, "maxIterations": 2}}
];
""",
    ".codemachine/template.json": '{"template": "spec-to-code", "version": "0.0.1"}',
    ".codemachine/prompts/plan.md": "Plan it.\n",
    ".codemachine/prompts/build.md": "Build it.\n",
}

# A package as people write them: comments, bare keys, paths that are put together, a workflow with a loop.
PACKAGE = {
    "config/main.agents.js": """\
const path = require('node:path');

const prompts = path.join(__dirname, '..', 'prompts'); // beside the configuration
const usual = { engine: 'codex' };

module.exports = [
  /* who looks first */
  { id: 'survey', name: 'Survey', description: 'Looks at the ground', promptPath: path.join(prompts, 'survey.md') },
  {
    ...usual,
    id: 'draw',
    promptPath: [path.join(prompts, 'who.md'), path.join(prompts, 'draw.md')],
    chainedPromptsPath: path.join(prompts, 'then'),
  },
  { id: 'lay', promptPath: `${prompts}/lay.md` },
  { id: 'tools', promptPath: prompts + '/tools.md' },
  { id: 'rescue', promptPath: path.resolve(prompts, 'rescue.md') },
  { id: 'boss', role: 'controller', promptPath: 'prompts/who.md' },
];
""",
    "config/sub.agents.js": """\
module.exports = [
  { id: 'mason', name: 'Mason', description: 'Knows stone', mirrorPath: 'prompts/sub/mason.md' },
  { id: 'roofer', name: 'Roofer', description: 'Knows slate' },
];
""",
    "config/modules.js": """\
const path = require('path');
module.exports = [
  {
    id: 'look-again',
    promptPath: path.join(__dirname, '..', 'prompts', 'check.md'),
    behavior: { type: 'loop', action: 'stepBack' },
  },
];
""",
    "config/placeholders.js": """\
const path = require('path');
module.exports = {
  userDir: {
    wishes: path.join('.codemachine', 'inputs', 'specifications.md'),
    drawing: path.join('.codemachine', 'artifacts', '*.md'),
  },
  packageDir: { manners: path.join('prompts', 'manners.md') },
};
""",
    "templates/workflows/house.workflow.js": """\
export default {
  name: 'House',
  steps: [
    separator("Before"),
    resolveStep('survey', { executeOnce: true }),
    resolveStep('draw', { engine: 'claude', notCompletedFallback: 'rescue', agentName: 'Drawer' }),
    separator("Work"),
    resolveStep('lay'),
    resolveStep('tools', { executeOnce: true }),
    resolveUI("Gate"),
    resolveModule('look-again', { loopSteps: 4, loopMaxIterations: 7, loopSkip: ['draw'] }),
  ],
  subAgentIds: ['mason'],
};
""",
    "prompts/survey.md": "Survey. {manners}\n",
    "prompts/who.md": "You are careful.\n",
    "prompts/draw.md": "Draw what is wished: {wishes}. Keep drawings in {drawing}. Leave {other} alone.\n",
    "prompts/then/01-first.md": "Then the first.\n",
    "prompts/then/02-second.md": "Then the second.\n",
    "prompts/lay.md": "Lay stones; ask the mason and the roofer.\n",
    "prompts/tools.md": "Fetch tools.\n",
    "prompts/rescue.md": "Clear up.\n",
    "prompts/check.md": "Check it, and say loop if something is missing.\n",
    "prompts/manners.md": "Be kind.\n",
    "prompts/sub/mason.md": "Stone upon stone.\n",
    ".codemachine/inputs/specifications.md": "A house with a door.\n",
}


def write(root: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root
