"""A generated cluster with the answers of the page's data API, for the fake page server."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

COLUMNS = ["id", "pod", "place", "position", "priority", "tries", "since", "nextTry"]
COLUMNS += ["reason", "gang", "queue", "gpus", "scheduler", "nominated"]
REASONS = [
    ["NodeResourcesFit", "Insufficient nvidia.com/gpu"],
    ["NodeResourcesFit", "Insufficient cpu"],
    ["TaintToleration", "node(s) had untolerated taint(s)"],
    ["NodeAffinity", "node(s) didn't match Pod's node affinity/selector"],
]
ZONE = "topology.kubernetes.io/zone"
GIB = 1 << 30
Tree = dict[str, Any]


class FakeCluster:
    """Columns of a cluster. hostile: a text that is put into every kind of name."""

    def __init__(self, n_nodes: int, n_pending: int, hostile: str = "", seed: int = 1) -> None:
        self.rng = rng = np.random.default_rng(seed)
        # NumPy takes a hundred times as long for one value.
        self.quick_rng = random.Random(seed)
        self.hostile = hostile
        self.names = [f"{hostile}node-{k:05d}" for k in range(n_nodes)]
        self.zones = ["", *(f"{hostile}eu-1{letter}" for letter in "abc")]
        self.pools = ["", "cpu", "a100", "t4"]
        self.zone = rng.integers(1, 4, n_nodes)
        self.pool = rng.choice([1, 1, 1, 2, 3], n_nodes)
        self.cards = np.where(self.pool == 2, 8, np.where(self.pool == 3, 4, 0))
        self.allocatable = {
            "cpu": np.where(self.pool == 2, 96_000, 32_000),
            "memory": np.where(self.pool == 2, 768, 128).astype(np.int64) * GIB,
            "nvidia.com/gpu": self.cards,
            "pods": np.full(n_nodes, 110),
        }
        self.share = rng.beta(3, 1.4, n_nodes)
        self.card_used = rng.choice([0, 250, 500, 1000, 1000, 1000], int(self.cards.sum()))
        self.first = np.concatenate(([0], np.cumsum(self.cards)))
        self.flags = rng.choice([0] * 60 + [1, 2, 4, 4], n_nodes)
        self.pending = [self._pod(k) for k in range(n_pending)]
        self.next_id = n_pending
        self.decisions = [self._decision(k) for k in range(60)]
        self.changed: list[Tree] = []
        self.ticks = 0

    def requested(self) -> dict[str, Any]:
        """Resource -> int64 (n_nodes,)."""
        gpu = np.add.reduceat(np.append(self.card_used > 0, 0), self.first[:-1]) * (self.cards > 0)
        steps = (self.share * self.allocatable["cpu"] // 250).astype(np.int64) * 250
        memory = (self.share * self.allocatable["memory"]).astype(np.int64) >> 28 << 28
        return {
            "cpu": steps,
            "memory": memory,
            "nvidia.com/gpu": gpu,
            "pods": (self.share * 60).astype(np.int64),
        }

    def _pod(self, k: int) -> list[Any]:
        quick, now = self.quick_rng, time.time() * 1000
        gang = f"ml/{self.hostile}train-{k % 40}" if k % 3 == 0 else ""
        place = quick.choice(["unschedulable", "unschedulable", "backoff", "active"])
        (reason,) = quick.choices(range(len(REASONS)), [0.55, 0.25, 0.15, 0.05])
        gpus = quick.choice([0, 1, 2, 8]) if reason == 0 else 0
        name = f"ml/{self.hostile}train-{k % 40}-{k}" if gang else f"batch/{self.hostile}job-{k}"
        queue = f"{self.hostile}research" if gang else "batch"
        position = k if place == "active" else None
        times = [now - quick.gammavariate(2, 900_000), now + quick.randrange(60_000)]
        tries = quick.randrange(1, 9)
        head = [k, name, place, position, quick.choice([0, 100, 1000]), tries, *times]
        return [*head, reason, gang, queue, gpus, "stowplan", ""]

    def _decision(self, k: int) -> Tree:
        node = self.names[int(self.rng.integers(len(self.names)))] if self.names else ""
        refused = k % 7 == 3
        plugins = {
            "NodeResourcesFit": {"raw": 71, "weight": 1, "final": 71},
            "TaintToleration": {"raw": 0, "weight": 3, "final": 300},
        }
        return {
            "id": k,
            "time": time.time() * 1000,
            "pod": f"batch/{self.hostile}job-{k}",
            "outcome": "unschedulable" if refused else "bound",
            "node": "" if refused else node,
            "scheduler": "stowplan",
            "lane": "profiles",
            "feasible": 0 if refused else 41,
            "evaluated": len(self.names),
            "microseconds": 180.0 + k % 60,
            "message": f"0/{len(self.names)} nodes are available" if refused else "",
            "scores": None
            if refused
            else [{"name": node, "total": 371, "plugins": plugins}] * min(1, len(self.names)),
        }

    def tick(self, share: float = 0.1) -> tuple[Any, list[int], list[list[Any]], list[Tree]]:
        """Changed rows, removed pods, new pods, new decisions."""
        self.ticks += 1
        n = len(self.names)
        rows = np.sort(self.rng.choice(n, max(1, int(n * share)), replace=False))
        drift = self.rng.normal(0, 0.04, len(rows))
        self.share[rows] = np.clip(self.share[rows] + drift, 0.02, 1.0)
        for row in rows[:20]:
            for card in range(self.first[row], self.first[row + 1]):
                self.card_used[card] = self.quick_rng.choice([0, 500, 1000, 1000])
        count = min(40, len(self.pending) // 10)
        removed = [pod[0] for pod in self.pending[:count]]
        added = [self._pod(self.next_id + k) for k in range(count)]
        self.next_id += count
        self.pending = self.pending[count:] + added
        new = [self._decision(len(self.decisions) + k) for k in range(4)]
        self.decisions += new
        if self.ticks % 20 == 1:
            name = self.names[int(self.rng.integers(n))]
            change = {"time": time.time() * 1000, "what": "node", "name": name, "text": "cordoned"}
            self.changed = [change, *self.changed][:20]
        return rows, removed, added, new

    def groups(self) -> list[Tree]:
        """Pending pods by reason, largest first."""
        found = []
        for reason in range(len(REASONS)):
            pods = [pod for pod in self.pending if pod[8] == reason]
            if pods:
                since = min(pod[6] for pod in pods)
                gpus = sum(pod[11] for pod in pods)
                found.append({"reason": reason, "pods": len(pods), "gpus": gpus, "since": since})
        return sorted(found, key=lambda one: -one["pods"])

    def status(self) -> Tree:
        """The topic's object."""
        places = ("active", "backoff", "unschedulable", "gated")
        counts = {name: sum(pod[2] == name for pod in self.pending) for name in places}
        longest = min(self.pending, key=lambda pod: pod[6], default=None)
        reasons = self.groups()[:5]
        return {
            "healthy": True,
            "unready": [],
            "source": "live",
            "leads": True,
            "holder": f"{self.hostile}stowplan-up_host_1b2c",
            "leaderSince": time.time() * 1000 - 8_000_000,
            "synced": True,
            "boundPerSecond": 40.0 + 10 * np.sin(self.ticks / 9),
            "bound": 10_231 + self.ticks,
            "pending": counts,
            "nodes": len(self.names),
            "pods": 120_311,
            "gpusWaiting": sum(pod[11] for pod in self.pending),
            "longestWait": longest and {"pod": longest[1], "since": longest[6]},
            "why": [
                {
                    "rule": REASONS[one["reason"]][0],
                    "reason": self.reasons()[one["reason"]][1],
                    "pods": one["pods"],
                    "gpus": one["gpus"],
                }
                for one in reasons
            ],
            "changed": self.changed,
            "findings": [],
        }

    def reasons(self) -> list[list[str]]:
        """Rule and reason."""
        return [[rule, f"{reason}{self.hostile}"] for rule, reason in REASONS]

    def node_snapshot(self) -> tuple[Tree, dict[str, Any]]:
        """JSON and arrays of the topic nodes."""
        units = {"cpu": "milli", "memory": "bytes"}
        resources = [{"name": name, "unit": units.get(name, "count")} for name in self.allocatable]
        data = {
            "names": self.names,
            "resources": resources,
            "groups": {ZONE: self.zones},
        }
        arrays = {f"allocatable:{name}": one for name, one in self.allocatable.items()}
        arrays |= {f"requested:{name}": one for name, one in self.requested().items()}
        arrays |= {"flags": self.flags, f"group:{ZONE}": self.zone}
        arrays |= {"cards": self.cards, "cardUsed": self.card_used}
        return data, arrays

    def queues(self) -> Tree:
        """The topic's object, with history."""
        names = [
            ("root", "", 1.0),
            (f"{self.hostile}research", "root", 0.5),
            ("batch", "root", 0.3),
        ]
        queues = [
            {
                "name": name,
                "parent": parent,
                "weight": 1,
                "podsPlaced": 120,
                "podsPending": 30,
                "guarantee": {"cpu": 200.0 * part},
                "deserved": {"cpu": 1000.0 * part, "nvidia.com/gpu": 400.0 * part},
                "allocated": {"cpu": 1100.0 * part, "nvidia.com/gpu": 320.0 * part},
                "pending": {"cpu": 80.0},
                "borrowed": {"cpu": 100.0 * part},
                "lent": {"nvidia.com/gpu": 80.0 * part},
            }
            for name, parent, part in names
        ]
        loan = {"borrower": names[1][0], "lender": "batch", "resource": "cpu", "amount": 50.0}
        now = time.time() * 1000
        times = [now - 10_000 * (360 - k) for k in range(360)]
        series = [
            {
                "scheduler": "stowplan",
                "queue": name,
                "resource": resource,
                "field": field,
                "values": [size * part * (1 + 0.2 * np.sin(k / 40 + place)) for k in range(360)],
            }
            for place, (name, _, part) in enumerate(names)
            for resource, size in (("cpu", 1000), ("nvidia.com/gpu", 320))
            for field in ("allocated", "deserved")
        ]
        gangs = [
            {
                "gang": f"ml/{self.hostile}train-{k}",
                "queue": names[1][0],
                "phase": "Pending",
                "min": 8,
                "running": k % 8,
                "pending": 8 - k % 8,
                "missing": 0,
            }
            for k in range(12)
        ]
        # As Kueue's are.
        message = f"WaitingForQuota: {self.hostile}insufficient unused quota for cpu " * 4
        gangs.append({**gangs[0], "gang": "ml/job/sweep", "workload": True, "message": message})
        queues[-1]["problem"] = f"ResourceFlavor {self.hostile} not found"
        total = {"cpu": 1200.0, "nvidia.com/gpu": 400.0}
        scheduler = {"schedulerName": "stowplan", "total": total, "queues": queues, "loans": [loan]}
        return {
            "time": now,
            "schedulers": [scheduler],
            "gangs": gangs,
            "history": {"times": times, "series": series},
        }

    def node(self, name: str) -> Tree:
        """Answer of `GET nodes/NAME`."""
        row = self.names.index(name)
        used = self.requested()
        cards = range(self.first[row], self.first[row + 1])
        pods = [
            {"pod": f"batch/{self.hostile}web-{k}", "requests": {"cpu": 500, "memory": GIB}}
            for k in range(int(used["pods"][row]))
        ]
        return {
            "name": name,
            "labels": {ZONE: self.zones[self.zone[row]], "pool": self.pools[self.pool[row]]},
            "unschedulable": bool(self.flags[row] & 1),
            "ready": not self.flags[row] & 2,
            "taints": [{"key": "gpu", "value": f"{self.hostile}x", "effect": "NoSchedule"}],
            "resources": [
                {
                    "name": resource,
                    "allocatable": int(amount[row]),
                    "requested": int(used[resource][row]),
                }
                for resource, amount in self.allocatable.items()
            ],
            "cards": [
                {"index": k, "used": int(self.card_used[card]), "pods": []}
                for k, card in enumerate(cards)
            ],
            "pods": pods,
            "selected": None,
        }

    def why(self, pod: str) -> Tree:
        """Answer of `GET pods/NS/NAME/why`."""
        name = self.names[0]
        n = len(self.names)
        detail = f"requests 8 nvidia.com/gpu, 6 free{self.hostile}"
        rules = [
            {
                "rule": rule,
                "reason": reason,
                "first": n // (k + 1),
                "nodes": n,
                "examples": [{"node": name, "details": [detail]}],
            }
            for k, (rule, reason) in enumerate(self.reasons()[:3])
        ]
        rules[0] |= {"need": "8", "have": {"least": "0", "most": "6"}}
        plugins = {"NodeResourcesFit": {"raw": 71, "weight": 1, "final": 71}}
        gang = {"gang": f"ml/{self.hostile}train-7", "phase": "Pending", "min": 8, "running": 4}
        return {
            "pod": pod,
            "state": "pending",
            "node": "",
            "scheduler": "stowplan",
            "message": f"0/{n} nodes are available: {self.reasons()[0][1]}.",
            "nodes": n,
            "fitting": 0,
            "rules": rules,
            "changes": [{"kind": "pod", "text": "request 6 nvidia.com/gpu instead of 8"}],
            "scores": [{"name": name, "total": 71, "plugins": plugins}],
            "gang": gang | {"pending": 4, "missing": 0, "queue": f"{self.hostile}research"},
            "queue": f"{self.hostile}research",
            "attempts": [
                {"time": time.time() * 1000, "outcome": "unschedulable", "message": detail}
            ],
        }

    def preemptions(self) -> Tree:
        """Answer of `GET preemptions`."""
        now = time.time() * 1000
        pair = {"victim": f"batch/{self.hostile}low-3", "preemptor": "ml/train-7"}
        found = [
            {
                "id": k,
                "time": now - k * 9000,
                "node": self.names[k],
                "gapMs": 900.0 + k,
                "victimPriority": 0,
                "preemptorPriority": 1000,
                "loop": k < 2,
                "message": "Preempted by a pod",
                **pair,
            }
            for k in range(min(9, len(self.names)))
        ]
        loop = {"pods": list(pair.values()), "count": 3, "first": now - 40_000, "last": now}
        return {"preemptions": found, "loops": [loop]}

    def what_if(self) -> Tree:
        """Answer of `POST what-if`."""
        amounts = {"requested": 4000, "allocatable": 8000, "share": 0.5}
        pods = [
            {
                "pod": f"batch/{self.hostile}web-{k}",
                "effect": "moved",
                "from": self.names[k],
                "to": self.names[-1 - k],
            }
            for k in range(min(20, len(self.names)))
        ]
        change = {"kind": "drain", "text": self.zones[1], "effect": "20 pods evicted"}
        return {
            "changes": [change],
            "summary": {"moved": 20, "unplaced": 0},
            "pods": pods,
            "resources": {"cpu": {"before": amounts, "after": amounts}},
            "queues": {},
            "notes": [],
        }

    def what_admits(self, workload: str) -> Tree:
        """Answer of `POST what-if` about a workload of Kueue."""
        namespace, _, job = workload.partition("/")
        waits = {"status": "Pending", "reason": "WaitingForQuota", "position": 3}
        names = {"namespace": namespace, "job": job, "local_queue": "q", "cluster_queue": "team-b"}
        message = f"insufficient unused quota for cpu in flavor {self.hostile}f, 4 more needed"
        change = {"queue": f"team-b.nominalQuota[{self.hostile}f/cpu]=12"}
        return {
            "workload": {**names, **waits, "message": message},
            "short": [f"cpu in flavor {self.hostile}f: requested 6; borrowed by team-a 4"],
            "admittedBy": [
                {"text": f"nominalQuota 12 of cpu in flavor {self.hostile}f", "changes": [change]},
                {"text": "the end of job/big", "changes": [{"delete": "job/big"}]},
            ],
        }

    def other_quota(self) -> Tree:
        """Answer of `POST what-if` about quota of Kueue."""
        before = {"status": "Pending", "reason": "WaitingForQuota", "flavors": {}}
        after = {"status": "Admitted", "reason": "", "flavors": {"main": {"cpu": "f"}}}
        one = {"namespace": "ml", "job": f"job/{self.hostile}sweep"}
        return {
            "changes": [f"--queue team-b.nominalQuota[{self.hostile}f/cpu]=12"],
            "admitted": [3, 4],
            "pending": [1, 0],
            "workloads": [{**one, "before": before, "after": after}],
        }

    def page(self, query: Any) -> Tree:
        """Answer of `GET pending`."""
        text = query.get("filter", "").lower()
        place = COLUMNS.index(query.get("sort", "since"))
        rows = [pod for pod in self.pending if text in f"{pod[1]} {pod[10]} {pod[9]}".lower()]
        rows.sort(key=lambda pod: (pod[place] is None, pod[place]))
        if query.get("order") == "desc":
            rows.reverse()
        start, limit = int(query.get("offset", 0)), int(query.get("limit", 200))
        return {
            "total": len(self.pending),
            "matching": len(rows),
            "offset": start,
            "columns": COLUMNS,
            "rows": rows[start : start + limit],
            "reasons": self.reasons(),
        }
