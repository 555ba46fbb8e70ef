"""A webhook receiver with Python alone: SVC_API_KEY=... PORT=3000 python3 receiver.py"""
import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

API_KEY = os.environ["SVC_API_KEY"].encode()
TOLERANCE_SECONDS = 300
BODY_BYTES_MAX = 1024 * 1024
handled = set()  # in production: a unique constraint in your database
lock = Lock()


def equal(given, expected):
    return hmac.compare_digest(given.encode(), expected.encode())


def is_signed(headers, raw_body):
    """X-SVC-Signature: sha256=<hex> over the raw body."""
    digest = hmac.new(API_KEY, raw_body, hashlib.sha256).hexdigest()
    return equal(headers.get("X-SVC-Signature", ""), "sha256=" + digest)


def is_fresh(headers, raw_body):
    """Standard Webhooks: v1,<base64> over id, timestamp and raw body; an old timestamp is a recorded request."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    content = f"{message_id}.{timestamp}.".encode() + raw_body
    expected = "v1," + base64.b64encode(hmac.new(API_KEY, content, hashlib.sha256).digest()).decode()
    return any(equal(signature, expected) for signature in headers.get("webhook-signature", "").split(" "))


class Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413, b"")
        raw_body = self.rfile.read(int(length))
        if not is_signed(self.headers, raw_body) or not is_fresh(self.headers, raw_body):
            return self.answer(401, b"")
        message = json.loads(raw_body)
        once = (message["event"], message["data"]["task_id"])  # a failed task sends two events with one task_id
        with lock:
            if once in handled:
                return self.answer(200, b"duplicate")
            handled.add(once)
        print(*once, flush=True)
        self.answer(200, b"handled")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "3000"))), Receiver)
print("listening on", server.server_port, flush=True)
server.serve_forever()
