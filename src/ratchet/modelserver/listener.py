"""The socket that clients connect to: a thread for each of them, and an end that none of them outlives."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading
from typing import Any

_PATIENCE_SECONDS = 5


class Listener(socketserver.TCPServer):
    """Serves until `close`."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._clients: dict[threading.Thread, socket.socket] = {}
        # Clients come and go while they are counted.
        self._lock = threading.Lock()
        super().__init__(*args)

    def close(self) -> None:
        """Close every connection, wherever its thread waits, and wait until the threads have ended."""
        self.shutdown()
        self.server_close()
        with self._lock:
            clients = dict(self._clients)
        for connection in clients.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in clients:
            thread.join(_PATIENCE_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        with self._lock:
            self._clients[thread] = request
        thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time; anything else is a mistake of ours that must be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 - the end of one client is not the end of the others
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                del self._clients[threading.current_thread()]
