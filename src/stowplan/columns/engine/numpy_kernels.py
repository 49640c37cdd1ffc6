"""The kernels' `run` in NumPy, for the time until compiled kernels are there.

Same arguments and same results as `kernels.run`. Per class the points of every row are kept in the
first `n_nodes` cells of its tree, by row; a class that is used again has only the rows in the log
since its last use evaluated. Points that depend on other rows (normalized scores, points of
topology domains) are not kept: they are computed for all rows of each pod.

Every number is computed as the kernels compute it, so the results equal theirs to the bit.

Source: kube-scheduler v1.36, for the arithmetic: see the plugins' own files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine import arrays as at
from stowplan.columns.engine.tie_break import tie_break_ranks

NOWHERE = -1

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class RunRules:
    """The rules of one class, read from its row of `ClassRules.classes`.

    items: resources that its rules read. wanted, used, even: which of `items` must be free, are
    scored by utilisation, and by balance; their amounts and weights are int64 (n, 1).
    """

    def __init__(self, number: int, rules: at.ClassRules) -> None:
        cells: list[int] = rules.classes[number].tolist()
        self.number = number
        self.static, self.layout, self.tree = cells[at.STATIC], cells[at.LAYOUT], cells[at.TREE]
        self.n_groups = cells[at.N_GROUPS]
        self._read_amounts(cells)
        self.line = rules.lines[cells[at.LINE]]
        self.taken = _pairs(cells, at.TAKEN, cells[at.N_TAKEN])
        self.cpu, self.memory = cells[at.CPU], cells[at.MEMORY]
        self.n_cards, self.card_milli = cells[at.N_CARDS], cells[at.CARD_MILLI]
        self.card_order = cells[at.CARD_ORDER]
        self.normalised = _pairs(cells, at.NORMALISED, cells[at.N_NORMALISED])
        first, last = cells[at.FIRST_TERM], cells[at.FIRST_TERM] + cells[at.N_TERMS]
        by_domain = first + cells[at.N_HOST_TERMS]
        self.host_terms, self.domain_terms = range(first, by_domain), range(by_domain, last)
        self.spread_weight = cells[at.SPREAD_WEIGHT]
        self.affinity_weight = cells[at.AFFINITY_WEIGHT]
        self.requires_all = cells[at.REQUIRES_ALL] == 1
        self.matches_itself = cells[at.MATCHES_ITSELF] == 1
        start, end = rules.first_effect[number : number + 2].tolist()
        self.effects: list[list[int]] = rules.effects[start:end].tolist()

    def _read_amounts(self, cells: list[int]) -> None:
        used, weights, sources, asked = _table(cells, at.USED, cells[at.N_USED], 4)
        even, added = _table(cells, at.EVEN, cells[at.N_EVEN], 2)
        wanted, amounts = _table(cells, at.WANTED, cells[at.N_WANTED], 2)
        self.items = list(dict.fromkeys([*used, *even, *wanted, cells[at.PODS]]))
        self.has_room, self.pods = cells[at.HAS_ROOM] == 1, self.items.index(cells[at.PODS])
        self.wanted, self.amounts = self._places(wanted), _column(amounts)
        self.used, self.weights, self.asked = self._places(used), _column(weights), _column(asked)
        self.sources = sources
        self.kind, self.use_weight = cells[at.USE_KIND], cells[at.USE_WEIGHT]
        # Even use is compared with the pod (1) and without it (0).
        self.even = self._places(even)
        self.even_added = _column(added)[:, :, None] * np.array([[[1], [0]]])
        self.even_weight = cells[at.EVEN_WEIGHT]

    def _places(self, those: list[int]) -> slice | list[int]:
        """Where these resources are in `items`; a slice, which copies nothing, if possible."""
        places = [self.items.index(item) for item in those]
        in_order = list(range(places[0], places[0] + len(places))) if places else []
        return slice(places[0], places[-1] + 1) if places and places == in_order else places


def _pairs(cells: list[int], first: int, n: int) -> list[tuple[int, int]]:
    """`n` pairs of consecutive cells."""
    end = first + 2 * n
    return list(zip(cells[first:end:2], cells[first + 1 : end : 2], strict=True))


def _table(cells: list[int], first: int, n: int, width: int) -> list[list[int]]:
    """`n` groups of `width` consecutive cells: the first of each group, the second, and so on."""
    return [cells[first + i : first + n * width : width] for i in range(width)]


def _column(numbers: list[int]) -> at.Ints:
    """int64 (n, 1)."""
    return np.array(numbers, dtype=np.int64)[:, None]


class Amounts(NamedTuple):
    """Amounts of rows. allocatable, requested: int64 (n_items, n_rows). nonzero: int64 (2, n_rows).
    pod_count: int64 (n_rows,)."""

    allocatable: at.Ints
    requested: at.Ints
    nonzero: at.Ints
    pod_count: at.Ints


def quotient(numerator: at.Ints, denominator: at.Ints | int) -> at.Ints:
    """int64: truncated toward zero; denominator not 0."""
    whole: at.Ints = numerator // denominator
    if whole.size and whole.min() < 0:
        whole += (whole < 0) & (whole * denominator != numerator)
    return whole


class NumpyRun:
    """A run of pods on the kernels' arrays."""

    def __init__(
        self,
        columns: at.NodeColumns,
        rules: at.ClassRules,
        grouping: at.DomainGrouping,
        left: at.Ints,
    ) -> None:
        self._columns = columns
        self._rules = rules
        self._grouping = grouping
        self._left = left
        self.log = grouping.log
        self._n_nodes = grouping.places.shape[2]
        self._parsed: dict[int, RunRules] = {}

    def rules_of(self, number: int) -> RunRules:
        """The rules of a class."""
        parsed = self._parsed.get(number)
        if parsed is None:
            parsed = self._parsed[number] = RunRules(number, self._rules)
        return parsed

    # Points of rows.

    def points(self, one: RunRules, n_log: int) -> at.Codes | at.Ints:
        """(n_nodes,): points of every row that depend on the row alone, NOWHERE where the pod does
        not fit. n_log: entries in the log."""
        classes = self._rules.classes
        seen = int(classes[one.number, at.SEEN])
        classes[one.number, at.SEEN] = n_log
        if one.tree == at.SHARED:
            return self.evaluated(one, None)
        kept: at.Codes = self._grouping.trees[one.tree, : self._n_nodes]
        if seen < 0 or (n_log - seen) * 4 > self._n_nodes + 64:
            kept[:] = self.evaluated(one, None)
        elif seen < n_log:
            rows = self._grouping.log[seen:n_log]
            kept[rows] = self.evaluated(one, rows)
        return kept

    def evaluated(self, one: RunRules, rows: at.Codes | at.Ints | None) -> at.Ints:
        """int64 (n_rows,): see `points`. rows: in any order; None for all."""
        amounts = self._amounts(one.items, rows)
        those = slice(None) if rows is None else rows
        total: at.Ints = np.array(self._rules.points[one.static][those])
        if one.use_weight:
            total += one.use_weight * use_points(one, amounts)
        if one.even_weight:
            total += one.even_weight * evenness_points(one, amounts)
        fits: Bools = self._rules.passes[one.static][those] != 0
        if one.has_room:
            fits &= has_room(one, amounts)
        if one.n_cards:
            fits &= (self._left[those] >= one.card_milli).sum(axis=1) >= one.n_cards
        for term in one.host_terms:
            fits &= self._is_apart(term, those)
        total[~fits] = NOWHERE
        return total

    def totals(self, one: RunRules, rows: at.Ints) -> at.Ints:
        """int64 (n_rows,): the points of rows, NOWHERE where the pod does not fit, for a class
        without terms that passes on no other row."""
        total = self.evaluated(one, rows)
        possible = total >= 0
        for k, (is_reversed, weight) in enumerate(one.normalised):
            raw = self._rules.raw[one.static, k][rows]
            total += weight * _normalised(raw, possible, is_reversed == 1)
        total[~possible] = NOWHERE
        return total

    def _amounts(self, items: list[int], rows: at.Codes | at.Ints | None) -> Amounts:
        allocatable, requested, nonzero, pod_count, _ = self._columns
        if rows is None:
            n_nodes = self._n_nodes
            return Amounts(
                allocatable[items, :n_nodes],
                requested[items, :n_nodes],
                nonzero[:, :n_nodes],
                pod_count[:n_nodes],
            )
        cells = np.array(items)[:, None], rows
        return Amounts(
            allocatable[cells], requested[cells], nonzero.take(rows, axis=1), pod_count[rows]
        )

    def _is_apart(self, term: int, rows: at.Codes | at.Ints | slice) -> Bools:
        """bool (n_rows,): rows without a pod that a term about the node keeps away from."""
        rules = self._rules
        key, first = rules.terms[term, [at.KEY, at.FIRST_COUNT]].tolist()
        values = rules.codes[key][rows]
        apart: Bools = (values < 0) | (_counts(rules, first, values) <= 0)
        return apart

    # One pod.

    def choose(self, one: RunRules, n_log: int, draw: int | None) -> tuple[int, int]:
        """The row with the most points, and the points; NOWHERE if the pod fits nowhere."""
        total: NDArray[Any] = self.points(one, n_log)
        if one.normalised or one.domain_terms:
            total = self._with_other_rows(one, total)
        best = int(total.max())
        if best < 0:
            return NOWHERE, NOWHERE
        tied = np.flatnonzero(total == best)
        if tied.shape[0] > 1:
            ranks = self._columns.rank[tied]
            order = ranks if draw is None else tie_break_ranks(draw, ranks)
            return int(tied[order.argmin()]), best
        return int(tied[0]), best

    def _with_other_rows(self, one: RunRules, points: at.Codes | at.Ints) -> at.Ints:
        """int64 (n_nodes,): `points` plus what depends on other rows."""
        total = points.astype(np.int64)
        possible = total >= 0
        if one.domain_terms:
            group_of_row = self._grouping.places[one.layout, at.GROUP]
            domains = DomainRules(one, self._rules, self._grouping)
            is_open = np.zeros(one.n_groups, dtype=np.bool_)
            is_open[group_of_row[possible]] = True
            is_open &= domains.admitting()
            possible &= is_open[group_of_row]
            total += domains.points(is_open)[group_of_row]
        for k, (is_reversed, weight) in enumerate(one.normalised):
            raw = self._rules.raw[one.static, k]
            total += weight * _normalised(raw, possible, is_reversed == 1)
        total[~possible] = NOWHERE
        return total

    def place(self, one: RunRules, row: int) -> bool:
        """Count a pod on a row; True if a score of the row changes when it is refreshed."""
        columns, rules = self._columns, self._rules
        for item, amount in one.taken:
            columns.requested[item, row] += amount
        columns.nonzero[0, row] += one.cpu
        columns.nonzero[1, row] += one.memory
        columns.pod_count[row] += 1
        for term, count in one.effects:
            cells = rules.terms[term]
            if cells[at.MASK] >= 0 and rules.masks[cells[at.MASK], row] == 0:
                continue
            value = rules.codes[cells[at.KEY], row]
            if value >= 0:
                rules.counts[cells[at.FIRST_COUNT] + value] += count
                cells[at.TOTAL] += count
                cells[at.N_LOWEST] = 0
        return bool(rules.behind[row])

    def take_cards(self, one: RunRules, row: int) -> list[int]:
        """Take GPU cards of a row for a pod; returns their indices."""
        left = self._left[row]
        chosen = chosen_cards(left.tolist(), one.n_cards, one.card_milli, one.card_order)
        left[chosen] -= one.card_milli
        return chosen


def chosen_cards(left: Sequence[int], num: int, milli: int, order: int) -> list[int]:
    """Indices of the cards that a pod gets; of cards alike the first. left: milli of each card.
    order: see `arrays`."""
    suiting = [card for card, value in enumerate(left) if value >= milli]
    if order != at.FIRST_CARDS:
        sign = -1 if order == at.MOST_LEFT else 1
        suiting.sort(key=lambda card: sign * left[card])
    return suiting[:num]


# Scores of rows.


def has_room(one: RunRules, amounts: Amounts) -> Bools:
    """bool (n_rows,): rows with enough free resources and a free slot for the pod."""
    free = amounts.allocatable[one.wanted] - amounts.requested[one.wanted]
    enough: Bools = np.logical_and.reduce(one.amounts <= free, axis=0)
    enough &= amounts.pod_count < amounts.allocatable[one.pods]
    return enough


def use_points(one: RunRules, amounts: Amounts) -> at.Ints:
    """int64 (n_rows,): score by utilisation with the pod on the row."""
    whole, weights = amounts.allocatable[one.used], one.weights
    taken = amounts.requested[one.used] + one.asked
    for place, source in enumerate(one.sources):
        if source != at.REQUESTED:
            taken[place] = amounts.nonzero[source - 1] + one.asked[place]
    if not whole.all():
        weights = weights * (whole != 0)
        whole = np.where(whole == 0, 1, whole)
    if one.kind == at.LEAST:
        share = quotient(np.maximum(whole - taken, 0) * 100, whole)
    else:
        share = quotient(np.minimum(taken, whole) * 100, whole)
    if one.kind == at.RATIO:
        share = one.line[np.clip(share, 0, 100)]
        total = (weights * share).sum(axis=0)
        divisor = np.maximum((weights * (share > 0)).sum(axis=0), 1)
        rounded: at.Ints = (2 * total + divisor) // (2 * divisor)
        return rounded
    return quotient((weights * share).sum(axis=0), np.maximum(weights.sum(axis=0), 1))


def evenness_points(one: RunRules, amounts: Amounts) -> at.Ints:
    """int64 (n_rows,): how much more evenly the resources of a row are used with the pod."""
    whole = amounts.allocatable[one.even][:, None, :]
    taken = amounts.requested[one.even][:, None, :] + one.even_added
    after, before = evenness(whole, taken)
    return 50 + quotient(50 + after - before, 2)


def evenness(whole: at.Ints, taken: at.Ints) -> at.Ints:
    """int64 (2, n_rows): 100 where the resources of a row are used to the same fraction, less
    elsewhere. whole: int64 (n_resources, 1, n_rows). taken: int64 (n_resources, 2, n_rows)."""
    if whole.shape[0] == 2 and whole.all():
        first, second = np.minimum(taken / whole, 1.0)
        deviation = abs((first - second) / 2)
    else:
        present = whole != 0
        deviation = _deviation(np.minimum(taken / np.where(present, whole, 1), 1.0), present)
    score: at.Ints = ((1 - deviation) * 100).astype(np.int64)
    return score


def _deviation(fractions: Floats, present: Bools) -> Floats:
    """float64 (2, n_rows): deviation of the fractions of present resources."""
    n_fractions = present.sum(axis=0)
    total = np.zeros(fractions.shape[1:])
    # One after the other, since the order of additions decides the last bit.
    for fraction, is_present in zip(fractions, present, strict=True):
        total += np.where(is_present, fraction, 0.0)
    mean = total / np.maximum(n_fractions, 1)
    squares = np.zeros(fractions.shape[1:])
    for fraction, is_present in zip(fractions, present, strict=True):
        squares += np.where(is_present, (fraction - mean) * (fraction - mean), 0.0)
    several = np.sqrt(squares / np.maximum(n_fractions, 1))
    highest = np.where(present, fractions, -np.inf).max(axis=0, initial=-np.inf)
    lowest = np.where(present, fractions, np.inf).min(axis=0, initial=np.inf)
    two = (highest - lowest) / 2
    deviation: Floats = np.where(n_fractions < 2, 0.0, np.where(n_fractions == 2, two, several))
    return deviation


def _normalised(raw: at.Ints, possible: Bools, is_reversed: bool) -> at.Ints | int:
    """int64 (n_nodes,): raw scores in percent of the highest among possible rows."""
    highest = int(raw.max(where=possible, initial=0))
    if highest == 0:
        return 100 if is_reversed else 0
    # A row that is not possible may have a higher one; its points are not used.
    share: at.Ints = np.minimum(raw, highest) * 100 // highest
    return 100 - share if is_reversed else share


# Domains.


class DomainRules:
    """The terms of a class about topology domains, evaluated per group of rows."""

    def __init__(self, one: RunRules, rules: at.ClassRules, grouping: at.DomainGrouping) -> None:
        self._one = one
        self._rules = rules
        values = grouping.values[one.layout, :, : one.n_groups]
        # Per term: its cells, the value of each group, and the count of each group.
        self._terms: list[tuple[list[int], at.Codes, at.Ints]] = []
        for term in one.domain_terms:
            cells: list[int] = rules.terms[term].tolist()
            of_groups = values[cells[at.SLOT]]
            self._terms.append((cells, of_groups, _counts(rules, cells[at.FIRST_COUNT], of_groups)))

    def admitting(self) -> Bools:
        """bool (n_groups,): groups whose domains admit the pod."""
        admits = np.ones(self._one.n_groups, dtype=np.bool_)
        is_near, n_peers = admits.copy(), 0
        for cells, values, counts in self._terms:
            kind = cells[at.KIND]
            if kind == at.APART:
                admits &= counts <= 0
            elif kind == at.NEAR:
                admits &= values >= 0
                is_near &= counts > 0
                n_peers += cells[at.TOTAL]
            elif kind == at.EVEN_HARD:
                skew = counts + (cells[at.MATCHES] - self._floor(cells))
                admits &= (values >= 0) & (skew <= cells[at.SKEW_MAX])
        if not (n_peers == 0 and self._one.matches_itself):
            admits &= is_near
        return admits

    def _floor(self, cells: list[int]) -> int:
        """The minimum count that a hard spread term is compared with."""
        if cells[at.N_DOMAINS] < cells[at.DOMAINS_MIN]:
            return 0
        every = slice(cells[at.FIRST_COUNT], cells[at.FIRST_COUNT] + cells[at.N_VALUES])
        present = self._rules.present[every] == 1
        return int(self._rules.counts[every].min(where=present, initial=2**31 - 1))

    def points(self, is_open: Bools) -> at.Ints:
        """int64 (n_groups,): weighted points of the domains of open groups; undefined for others.
        is_open: bool (n_groups,)."""
        one = self._one
        total = np.zeros(one.n_groups, dtype=np.int64)
        if one.affinity_weight:
            raw = total.copy()
            for cells, _, counts in self._terms:
                if cells[at.KIND] == at.WEIGHTED_AFFINITY:
                    raw += counts
            total += one.affinity_weight * _between_lowest_and_highest(raw, is_open)
        if one.spread_weight:
            total += one.spread_weight * self._spread_points(is_open)
        return total

    def _spread_points(self, is_open: Bools) -> at.Ints:
        soft = [one for one in self._terms if one[0][at.KIND] == at.EVEN_SOFT]
        is_scored = is_open.copy()
        if self._one.requires_all:
            for _, values, _ in soft:
                is_scored &= values >= 0
        raw = np.zeros(self._one.n_groups)
        for cells, values, counts in soft:
            # The value of groups without the label counts as one, too.
            n_distinct = np.count_nonzero(np.bincount(values[is_scored] + 1))
            weight = self._rules.logs[n_distinct]
            raw += np.where(values >= 0, counts * weight + float(cells[at.SKEW_MAX] - 1), 0.0)
        whole = np.trunc(raw)
        whole += np.where(abs(raw - whole) >= 0.5, np.sign(raw), 0.0)
        return _fewest_highest(whole.astype(np.int64), is_scored)


def _between_lowest_and_highest(raw: at.Ints, is_open: Bools) -> at.Ints:
    """int64 (n_groups,): 0 for the lowest raw score of open groups, 100 for the highest."""
    among = raw[is_open]
    if among.size == 0 or among.min() == among.max():
        return np.zeros(raw.shape[0], dtype=np.int64)
    lowest, highest = among.min(), among.max()
    points: at.Ints = (100 * ((raw - lowest) / np.float64(highest - lowest))).astype(np.int64)
    return points


def _fewest_highest(raw: at.Ints, is_scored: Bools) -> at.Ints:
    """int64 (n_groups,): the lowest raw score highest, in 0..100; 0 for what is not scored."""
    among = raw[is_scored]
    highest = int(among.max(initial=0))
    if highest == 0:
        points = np.full(raw.shape[0], 100, dtype=np.int64)
    else:
        points = quotient(100 * (highest + int(among.min()) - raw), highest)
    # The original marks what is not scored by -1, and takes a score of -1 for the mark.
    points[~is_scored | (raw == -1)] = 0
    return points


def _counts(rules: at.ClassRules, first: int, values: at.Codes) -> at.Ints:
    """int64: the counts of a term at these values, 0 where there is none."""
    if rules.counts.shape[0] == 0:
        return np.zeros(values.shape[0], dtype=np.int64)
    # A term without values may begin where the counts end.
    found = rules.counts.take(first + np.maximum(values, 0), mode="clip")
    counts: at.Ints = np.where(values >= 0, found, 0)
    return counts


def run(
    columns: Iterable[NDArray[Any]],
    rules: Iterable[NDArray[Any]],
    grouping: Iterable[NDArray[Any]],
    scratch: Iterable[NDArray[Any]],
    heads: at.Ints,
    draws: NDArray[np.uint64],
    rows: at.Ints,
    totals: at.Ints,
    left: at.Ints,
    given: at.Ints,
    n_log: int,
) -> int:
    """See `kernels.run`. scratch is not used."""
    placing = NumpyRun(
        at.NodeColumns(*columns), at.ClassRules(*rules), at.DomainGrouping(*grouping), left
    )
    log = placing.log
    tie_breaks: list[int] | None = draws.tolist() if draws.shape[0] else None
    for i, number in enumerate(heads.tolist()):
        one = placing.rules_of(number)
        row, total = placing.choose(one, n_log, None if tie_breaks is None else tie_breaks[i])
        if row < 0:
            return i
        rows[i], totals[i] = row, total
        if one.n_cards:
            given[i, 0] = one.n_cards
            given[i, 1 : one.n_cards + 1] = placing.take_cards(one, row)
        log[n_log] = row
        n_log += 1
        if placing.place(one, row):
            return i + 1
    return int(heads.shape[0])
