"""A model hub of our own that answers every name with a refusal."""

import contextlib
import http.server
import threading

ANSWERS = {
    "org/gated": (401, {"X-Error-Code": "GatedRepo"}),
    "org/denied": (403, {"X-Error-Code": "GatedRepo"}),
    "org/unknown": (404, {"X-Error-Code": "RepoNotFound"}),
    "org/empty": (404, {"X-Error-Code": "EntryNotFound"}),
    "org/old": (404, {"X-Error-Code": "RevisionNotFound"}),
    "org/closed": (401, {"X-Error-Message": "Invalid credentials"}),
}


class _Refusal(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        name = "/".join(self.path.split("/")[1:3])
        status, headers = ANSWERS[name]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *args):
        """Say nothing."""


@contextlib.contextmanager
def fake_hub():
    """Serve it, and tell its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusal)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
