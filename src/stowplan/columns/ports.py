"""Host ports in use, by port, so that a lookup does not search the nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.columns.pods.podinfo import WILDCARD_IP, Port


class PortIndex:
    """(protocol, port) -> address -> rows where it is in use; and the ports of each row.

    A port is in use or not, however many pods use it: it becomes free with the first of them, as in
    the original.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[str, set[int]]] = {}
        self._of_row: dict[int, set[Port]] = {}

    def of_row(self, row: int) -> frozenset[Port]:
        """The ports in use on a row."""
        return frozenset(self._of_row.get(row, ()))

    def add(self, row: int, ports: Iterable[Port]) -> None:
        """Mark ports as used."""
        for ip, protocol, number in ports:
            self._rows.setdefault((protocol, number), {}).setdefault(ip, set()).add(row)
            self._of_row.setdefault(row, set()).add((ip, protocol, number))

    def remove(self, row: int, ports: Iterable[Port]) -> None:
        """Mark ports as free; ports that are free stay free."""
        for ip, protocol, number in ports:
            held = self._of_row.get(row)
            if held is None or (ip, protocol, number) not in held:
                continue
            held.discard((ip, protocol, number))
            if not held:
                del self._of_row[row]
            addresses = self._rows[protocol, number]
            addresses[ip].discard(row)
            if not addresses[ip]:
                del addresses[ip]
            if not addresses:
                del self._rows[protocol, number]

    def write(self, row: int, ports: Iterable[Port]) -> None:
        """Replace the ports of a row."""
        self.remove(row, self.of_row(row))
        self.add(row, ports)

    def conflicts(self, ports: Iterable[Port], n_nodes: int) -> Bools:
        """bool (n_nodes,): rows where one of `ports` is used, on its address or on all."""
        taken = np.zeros(n_nodes, dtype=np.bool_)
        for ip, protocol, number in ports:
            addresses = self._rows.get((protocol, number), {})
            for held, rows in addresses.items():
                if WILDCARD_IP in (ip, held) or ip == held:
                    taken[list(rows)] = True
        return taken
