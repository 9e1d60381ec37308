"""A small agent with a command line, for tests: asks a model, runs the commands that it wants, prints JSON."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

URL, KEY = sys.argv[1], os.environ.pop("AGENT_API_KEY", "")


def ask(messages):
    request = urllib.request.Request(
        f"{URL}/chat/completions",
        json.dumps({"model": "mock-model", "messages": messages}).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        print(f"status {error.code}, retry after {error.headers.get('Retry-After', '')}", file=sys.stderr)
        sys.exit(75 if error.code == 429 else 1)
    except urllib.error.URLError as error:
        sys.exit(f"could not connect: {error.reason}")


messages = [{"role": "user", "content": sys.stdin.read()}]
tokens = {"prompt_tokens": 0, "completion_tokens": 0}
while True:
    answer = ask(messages)
    tokens = {name: count + answer["usage"][name] for name, count in tokens.items()}
    message = answer["choices"][0]["message"]
    messages.append(message)
    calls = message.get("tool_calls") or []
    if not calls:
        break
    for call in calls:
        command = json.loads(call["function"]["arguments"])["cmd"]
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})
print(json.dumps({"result": message["content"], "tokens": tokens}))
