"""A host of its own for workers: a network namespace behind a wire that can be unplugged, and made too narrow."""

from __future__ import annotations

import os
import shutil
import subprocess

FAR, NEAR = "10.213.77.1", "10.213.77.2"


def why_not():
    """Return why no namespace can be made here; None if one can."""
    if not all(map(shutil.which, ("ip", "tc"))):
        return "no ip and tc (iproute2) here"
    if os.geteuid() != 0:
        return "network namespaces are made by root"
    made = subprocess.run(["ip", "netns", "add", "eph-try"], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "delete", "eph-try"], check=True)
    return made.stderr.strip() or None


class Namespace:
    """A context manager that makes the namespace and takes it down.

    Attributes:
        prefix: What a command begins with that is to run there.
        near: The address that its processes find this side under.
    """

    def __init__(self):
        self._name = f"eph-{os.getpid()}"
        self._wire = f"eph{os.getpid() % 100_000}"
        self.prefix = ["ip", "netns", "exec", self._name]
        self.near = NEAR

    def __enter__(self):
        _run("ip", "netns", "add", self._name)
        try:
            _run("ip", "link", "add", f"{self._wire}n", "type", "veth", "peer", "name", f"{self._wire}f")
            _run("ip", "link", "set", f"{self._wire}f", "netns", self._name)
            _run("ip", "address", "add", f"{NEAR}/30", "dev", f"{self._wire}n")
            _run(*self.prefix, "ip", "address", "add", f"{FAR}/30", "dev", f"{self._wire}f")
            _run(*self.prefix, "ip", "link", "set", f"{self._wire}f", "up")
            self.plug_in()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Takes the wire down with it.
        _run("ip", "netns", "delete", self._name)

    def unplug(self):
        """Lose every packet: neither side is told."""
        _run("ip", "link", "set", f"{self._wire}n", "down")

    def plug_in(self):
        """Let packets pass again."""
        _run("ip", "link", "set", f"{self._wire}n", "up")

    def narrow(self, rate):
        """Lose each packet to the workers, and each from them, that comes faster than *rate*, as ``tc`` writes it."""
        limit = ("root", "tbf", "rate", rate, "burst", "2kb", "limit", "3kb")
        _run("tc", "qdisc", "replace", "dev", f"{self._wire}n", *limit)
        _run(*self.prefix, "tc", "qdisc", "replace", "dev", f"{self._wire}f", *limit)

    def widen(self):
        """End a `narrow`, and return how many packets were lost."""
        shown = [["tc", "-s", "qdisc", "show", "dev", f"{self._wire}n"]]
        shown += [[*self.prefix, "tc", "-s", "qdisc", "show", "dev", f"{self._wire}f"]]
        said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in shown]
        _run("tc", "qdisc", "delete", "dev", f"{self._wire}n", "root")
        _run(*self.prefix, "tc", "qdisc", "delete", "dev", f"{self._wire}f", "root")
        return sum(int(one.split("dropped ")[1].split(",")[0]) for one in said)


def _run(*command):
    subprocess.run(command, check=True, capture_output=True)
