"""A time limit on a whole answer, which the timeout of a socket is not: that one starts anew with every byte."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class Deadline:
    """Ends every connection that was opened under it when its time is over, whoever is waiting on it and for what."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def watch(self, connection: socket.socket) -> None:
        """Include ``connection``, as it is before any encryption wraps it."""
        with self._lock:
            self._sockets.append(connection.dup())
        if self.passed:
            self._end()

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()

    def _end(self) -> None:
        self.passed = True
        with self._lock:
            for connection in self._sockets:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has ended already


def open_session(deadline: Deadline) -> requests.Session:
    """A session whose connections all end with ``deadline``."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            connection = super()._new_conn()
            deadline.watch(connection)
            return connection

    class Encrypted(Plain, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    pools = {"http": PlainPool, "https": EncryptedPool}

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **options)
            manager.pool_classes_by_scheme = pools
            return manager

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session
