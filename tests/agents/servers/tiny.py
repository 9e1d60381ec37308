"""An MCP server without a library, which starts in no time. Copied beside the servers of tests, which import it."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = "2025-06-18"


def serve(*functions, port=None):
    """Serve functions without annotations: each takes keyword arguments and returns JSON."""
    server(*functions, port=port).serve_forever()


def server(*functions, port=None):
    tools = {each.__name__: each for each in functions}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in asked:
                self.answer(202, b"")
                return
            try:
                told = {"result": respond(tools, asked["method"], asked.get("params", {}))}
            except LookupError:
                told = {"error": {"code": -32601, "message": f"no {asked['method']}"}}
            self.answer(200, json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}).encode())

        def do_GET(self):
            self.answer(405, b"")

        do_DELETE = do_GET

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if port is None else port), Handler)


def respond(tools, method, params):
    if method == "initialize":
        info = {"name": "tiny", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [described(name, each) for name, each in tools.items()]}
    if method == "tools/call":
        said = tools[params["name"]](**params.get("arguments", {}))
        return {
            "content": [{"type": "text", "text": json.dumps(said)}],
            "structuredContent": said if isinstance(said, dict) else {"result": said},
        }
    raise LookupError(method)


def described(name, function):
    described = {"name": name, "description": function.__doc__ or "", "inputSchema": {"type": "object"}}
    schema = getattr(function, "output_schema", None)
    return described if schema is None else {**described, "outputSchema": schema}
