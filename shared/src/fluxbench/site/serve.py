"""Serves the drawn pages to browsers of this machine."""

from __future__ import annotations

import contextlib
import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_HOST = "127.0.0.1"


def serve(reports: Path, port: int) -> None:
    """Serve this folder until interrupted. Raises `OSError` with the address where it cannot be listened to."""
    try:
        server = ThreadingHTTPServer((_HOST, port), functools.partial(SimpleHTTPRequestHandler, directory=str(reports)))
    except OSError as error:
        error.filename = f"{_HOST}:{port}"
        raise
    with server, contextlib.suppress(KeyboardInterrupt):
        print(f"The site is http://{_HOST}:{port}/ until this is interrupted", flush=True)
        server.serve_forever()
