"""A certificate authority of one's own, servers that speak TLS, and a terminator in front of one that does not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading

import trustme

from ephemeral_redis.server import RedisServer, _free_port, find_program


class Authority:
    """Issues certificates, and keeps them as files.

    Attributes:
        ca: File with its own certificate, by which others know it.
    """

    def __init__(self, folder):
        self._folder = folder
        self._ca = trustme.CA()
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, *names):
        """Return the files of a certificate for *names* and of its key."""
        certificate, key = (str(self._folder / f"{names[0]}.{kind}") for kind in ("pem", "key"))
        issued = self._ca.issue_cert(*names)
        issued.private_key_pem.write_to_path(key)
        for number, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(certificate, append=number > 0)
        return certificate, key

    def arguments(self, *names, asks_for_certificates=False):
        """Return a server's arguments for a TLS port, and that port."""
        certificate, key = self.issue(*names)
        port = _free_port()
        return port, [
            *("--tls-port", str(port)),
            *("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", self.ca),
            *("--tls-auth-clients", "yes" if asks_for_certificates else "no"),
        ]

    def only_tls(self):
        """Return a TLS port, and the arguments of a server that speaks to its fellows through TLS alone."""
        port, arguments = self.arguments("127.0.0.1", "localhost")
        return port, [*arguments, "--tls-replication", "yes"]


def speaks_tls():
    """Whether the server program was built with TLS."""
    program = find_program()
    if program is None:
        return False
    # It ends in either case: one misses a key, the other all of TLS.
    said = subprocess.run(
        [program, "--port", "0", "--tls-port", str(_free_port()), "--tls-cert-file", "nowhere"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return "tls-key-file" in said.stdout + said.stderr


@contextlib.contextmanager
def own_tls(authority, *names, asks_for_certificates=False):
    """Yield the port of a server that speaks TLS itself."""
    port, arguments = authority.arguments(*names, asks_for_certificates=asks_for_certificates)
    with RedisServer(arguments=arguments):
        yield port


@contextlib.contextmanager
def terminated_tls(authority, *names, asks_for_certificates=False):
    """Yield the port of a terminator, as providers put one in front of a server that speaks no TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(*names))
    if asks_for_certificates:
        context.load_verify_locations(authority.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    with RedisServer() as server, socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, context, server.folder / "sock"), daemon=True).start()
        yield listening.getsockname()[1]
        # A thread that waits in accept() is woken by nothing else.
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening, context, path):
    while True:
        try:
            raw, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_terminate, args=(raw, context, path), daemon=True).start()


def _terminate(raw, context, path):
    with contextlib.suppress(OSError), raw:
        inside = context.wrap_socket(raw, server_side=True)
        with inside, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(path))
            back = threading.Thread(target=_pass_on, args=(server, inside), daemon=True)
            back.start()
            _pass_on(inside, server)
            back.join()


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
