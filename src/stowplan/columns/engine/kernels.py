"""Kernels: place a run of pods one after the other, each counted before the next is placed.

Per class a tournament tree holds the points of every row: a leaf is one row, an inner node the
higher of its children, so the root is the best. A placement changes one row, which is added to a
log; when a class is used again it re-evaluates the rows logged since its last use and updates the
paths above them. Points of topology domains (spread over zones, affinity to a zone) are not in the
leaves: rows of one domain share a tree, and the domain's points are added to the root when a pod is
placed.

Where the domains are rows (host names), a tree per domain would help nothing. Blocks of such rows
keep their cells: rows with equal counts, of which only the best can be chosen. A placement makes
one block stale, and only one row per cell is rated for a pod.

Points are integers and divisions truncate toward zero; floats are IEEE doubles and nothing is
reordered, so the results equal those of the NumPy code to the bit.

`arrays` documents the arrays. Each function takes only those that it reads: Numba's compile time
grows with the number of arrays passed on.

Source: kube-scheduler v1.36, for the arithmetic: see the plugins' own files.
"""

from __future__ import annotations

import numba
import numpy as np

from stowplan.columns.engine import arrays as at

if tuple(map(int, numba.__version__.split(".")[:2])) < (0, 61):
    raise ImportError(f"Numba {numba.__version__} is too old")


def jit(function):
    """Compile a function on its first call, with a cache on disk where that is writable: a
    container may have no such place."""
    # Kernels allocate nothing, so reference counting is off: with it a call costs twice as much.
    return compiled(function, {"error_model": "numpy", "boundscheck": False, "_nrt": False})


def compiled(function, options):
    """Compile a function with these options of Numba; see `jit`."""
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def jit_fused(function):
    """As `jit`, and a product may be added without being rounded: for results that need not be the
    same to the bit everywhere."""
    options = {"error_model": "numpy", "boundscheck": False, "_nrt": False}
    return compiled(function, {**options, "fastmath": {"contract"}})


# The array layout is compiled in, and Numba's disk cache only checks this file.
ARRAYS = "8c08e7997f28074a473a6787109d0315035ff9bfd1dbc1703106d019aff3ead3"

NOWHERE, NOT_PLAIN = -1, -2

EXACT_BELOW = 2**46

NOTHING, HALF = np.float32(0), np.float32(0.5)
SLACK, TWICE_SLACK, WHOLE = np.float32(2**-13), np.float32(2**-12), np.float32(100 + 2**-13)
"""In percent. Three roundings of numbers up to 100 to single precision, and those of what is
computed of them, are off by less than half of SLACK."""
NOT_ONE = np.int32(-2)
WEIGHT_MAX, POINTS_BELOW = 2**20, 2**24
"""Twice the points of a row, and 1, are an int32."""
BOUNDED_MIN = 4
"""Pods left in a run for which preparing bounds pays off."""
FEW_UNSURE = 4
"""Rows that are computed faster one by one than with all of their block."""
ARRANGED_MIN = 8
"""Pods left in a run for which it pays off to look for rows that are alike."""
N_SAMPLES = 3
"""Rows that are looked at for the state that most have."""


@jit
def quotient(numerator, denominator):
    """int64: truncated toward zero; denominator not 0."""
    whole = numerator // denominator
    if whole < 0 and whole * denominator != numerator:
        whole += 1
    return whole


@jit
def percentage(part, whole):
    """int64: 100 * part / whole, truncated toward zero; whole not 0.

    A division of doubles is faster than one of whole numbers, and exact here: below 2**46 the
    quotient is further from the next whole number than it can be rounded.
    """
    if 0 <= part <= whole < EXACT_BELOW:
        return np.int64(np.float64(part * 100) / np.float64(whole))
    return quotient(part * 100, whole)


@jit
def unsigned_range(start, end):
    """The numbers from `start` to `end`, not negative. Unsigned, so that none can be meant to count
    from the end of an array: only then loops that do not begin at 0 are vectorized."""
    return range(np.uint64(start), np.uint64(end))


# One row of one class.


@jit
def has_cards(c, row, classes, left):
    """True where as many GPU cards as class `c` requests have enough left."""
    n_suiting = np.int64(0)
    for card in range(left.shape[1]):
        if left[row, card] >= classes[c, at.CARD_MILLI]:
            n_suiting += 1
    return n_suiting >= classes[c, at.N_CARDS]


@jit
def fits(c, row, classes, allocatable, requested, pod_count, passes, terms, counts, codes, left):
    """True where a pod of class `c` passes every filter that depends on the row alone."""
    if passes[classes[c, at.STATIC], row] == 0:
        return False
    if classes[c, at.HAS_ROOM] == 1:
        if pod_count[row] + 1 > allocatable[classes[c, at.PODS], row]:
            return False
        for i in range(classes[c, at.N_WANTED]):
            item = classes[c, at.WANTED + 2 * i]
            amount = classes[c, at.WANTED + 2 * i + 1]
            if amount > allocatable[item, row] - requested[item, row]:
                return False
    if classes[c, at.N_CARDS] > 0 and not has_cards(c, row, classes, left):
        return False
    first = classes[c, at.FIRST_TERM]
    for t in range(first, first + classes[c, at.N_HOST_TERMS]):
        value = codes[terms[t, at.KEY], row]
        if value >= 0 and counts[terms[t, at.FIRST_COUNT] + value] > 0:
            return False
    return True


@jit
def use_points(c, row, classes, allocatable, requested, nonzero, lines):
    """int64: score by utilisation with the pod on the row."""
    kind = classes[c, at.USE_KIND]
    total, weights = np.int64(0), np.int64(0)
    for i in range(classes[c, at.N_USED]):
        place = at.USED + 4 * i
        item, weight, source = classes[c, place], classes[c, place + 1], classes[c, place + 2]
        whole = allocatable[item, row]
        if whole == 0:
            continue
        taken = requested[item, row] if source == at.REQUESTED else nonzero[source - 1, row]
        taken += classes[c, place + 3]
        if kind == at.LEAST:
            total += weight * percentage(max(whole - taken, 0), whole)
            weights += weight
            continue
        share = percentage(min(taken, whole), whole)
        if kind == at.MOST:
            total += weight * share
            weights += weight
        else:
            points = lines[classes[c, at.LINE], min(max(share, 0), 100)]
            total += weight * points
            if points > 0:
                weights += weight
    weights = max(weights, 1)
    if kind == at.RATIO:
        return (2 * total + weights) // (2 * weights)
    return quotient(total, weights)


@jit
def evenness(c, row, with_pod, classes, allocatable, requested):
    """int64: 100 where the resources of a row are used to the same fraction, less elsewhere."""
    n_fractions, total, first, second = 0, 0.0, 0.0, 0.0
    for i in range(classes[c, at.N_EVEN]):
        item = classes[c, at.EVEN + 2 * i]
        whole = allocatable[item, row]
        if whole != 0:
            taken = requested[item, row] + with_pod * classes[c, at.EVEN + 2 * i + 1]
            first = second
            second = min(np.float64(taken) / np.float64(whole), 1.0)
            total += second
            n_fractions += 1
    if n_fractions < 2:
        deviation = 0.0
    elif n_fractions == 2:
        deviation = abs((first - second) / 2)
    else:
        mean, squares = total / n_fractions, 0.0
        for i in range(classes[c, at.N_EVEN]):
            item = classes[c, at.EVEN + 2 * i]
            whole = allocatable[item, row]
            if whole != 0:
                taken = requested[item, row] + with_pod * classes[c, at.EVEN + 2 * i + 1]
                fraction = min(np.float64(taken) / np.float64(whole), 1.0)
                squares += (fraction - mean) * (fraction - mean)
        deviation = np.sqrt(squares / n_fractions)
    return np.int64((1 - deviation) * 100)


@jit
def is_plain(c, classes):
    """True for a class scored by cpu and memory only, as pods are by default."""
    return (
        classes[c, at.USE_KIND] == at.LEAST
        and classes[c, at.N_USED] == 2
        and classes[c, at.N_EVEN] == 2
        and classes[c, at.N_NORMALISED] == 0
        and classes[c, at.USED] == classes[c, at.EVEN]
        and classes[c, at.USED + 4] == classes[c, at.EVEN + 2]
        and classes[c, at.USED + 1] == 1
        and classes[c, at.USED + 5] == 1
        and classes[c, at.USED + 2] == at.NONZERO_CPU
        and classes[c, at.USED + 6] == at.NONZERO_MEMORY
    )


@jit
def plain_points(
    cpu, memory, cpu_taken, memory_taken, cpu_asked, memory_asked, cpu_filled, memory_filled,
    use_weight, even_weight,
):  # fmt: skip
    """int64: weighted sum of `use_points` and `evenness` of a row that has both resources.

    cpu_filled, memory_filled: used amounts including the pod, with defaults.
    """
    use = percentage(max(cpu - cpu_filled, 0), cpu)
    use += percentage(max(memory - memory_filled, 0), memory)
    cpu_whole, memory_whole = np.float64(cpu), np.float64(memory)
    before = min(np.float64(cpu_taken) / cpu_whole, 1.0)
    before -= min(np.float64(memory_taken) / memory_whole, 1.0)
    after = min(np.float64(cpu_taken + cpu_asked) / cpu_whole, 1.0)
    after -= min(np.float64(memory_taken + memory_asked) / memory_whole, 1.0)
    better = np.int64((1 - abs(after / 2)) * 100) - np.int64((1 - abs(before / 2)) * 100)
    return use_weight * (use >> 1) + even_weight * (50 + ((50 + better) >> 1))


@jit
def points_of(c, row, classes, allocatable, requested, nonzero, points, raw, lines):
    """int64: all weighted scores of a row that do not depend on its domains."""
    static = classes[c, at.STATIC]
    total = points[static, row]
    if is_plain(c, classes):
        cpu, memory = classes[c, at.USED], classes[c, at.USED + 4]
        if allocatable[cpu, row] != 0 and allocatable[memory, row] != 0:
            return total + plain_points(
                allocatable[cpu, row], allocatable[memory, row],
                requested[cpu, row], requested[memory, row],
                classes[c, at.EVEN + 1], classes[c, at.EVEN + 3],
                nonzero[0, row] + classes[c, at.USED + 3],
                nonzero[1, row] + classes[c, at.USED + 7],
                classes[c, at.USE_WEIGHT], classes[c, at.EVEN_WEIGHT],
            )  # fmt: skip
    if classes[c, at.USE_WEIGHT] != 0:
        use = use_points(c, row, classes, allocatable, requested, nonzero, lines)
        total += classes[c, at.USE_WEIGHT] * use
    if classes[c, at.EVEN_WEIGHT] != 0:
        after = evenness(c, row, 1, classes, allocatable, requested)
        before = evenness(c, row, 0, classes, allocatable, requested)
        total += classes[c, at.EVEN_WEIGHT] * (50 + quotient(50 + after - before, 2))
    for k in range(classes[c, at.N_NORMALISED]):
        highest = classes[c, at.HIGHEST + k]
        # Only a row of a closed group can be higher, whose points are not used.
        normal = min(raw[static, k, row], highest)
        if classes[c, at.NORMALISED + 2 * k] == 1:
            normal = 100 if highest == 0 else 100 - quotient(normal * 100, highest)
        elif highest != 0:
            normal = quotient(normal * 100, highest)
        total += classes[c, at.NORMALISED + 2 * k + 1] * normal
    return total


# The tree of one class.


@jit
def note_raw(c, k, value, classes):
    """Count a row with this raw score; True when it is higher than all before."""
    if value == classes[c, at.HIGHEST + k]:
        classes[c, at.N_HIGHEST + k] += 1
    elif value > classes[c, at.HIGHEST + k]:
        classes[c, at.HIGHEST + k] = value
        classes[c, at.N_HIGHEST + k] = 1
        return True
    return False


@jit
def clear(c, tree, classes, groups, trees):
    """Empty the tree of class `c` and its raw score counts."""
    layout = classes[c, at.LAYOUT]
    last = classes[c, at.N_GROUPS] - 1
    width = groups[layout, at.FIRST, last] + 2 * groups[layout, at.SIZE, last]
    for i in range(width):
        trees[tree, i] = NOWHERE
    for k in range(classes[c, at.N_NORMALISED]):
        classes[c, at.HIGHEST + k] = 0
        classes[c, at.N_HIGHEST + k] = 0


@jit
def build(
    c, classes, allocatable, requested, nonzero, pod_count, passes, points, raw, terms, counts,
    codes, groups, places, trees, cells, even, leaves, left, lines,
):  # fmt: skip
    """Evaluate every row for class `c`."""
    layout, static, tree = classes[c, at.LAYOUT], classes[c, at.STATIC], classes[c, at.TREE]
    clear(c, tree, classes, groups, trees)
    for block in range(classes[c, at.N_BLOCKS]):
        cells[tree, block, 0] = at.STALE
    if asks_plainly(c, classes):
        note_evenness(c, 0, leaves.shape[0], classes, allocatable, requested, even)
        if fill_plain(
            c, 0, leaves.shape[0], classes, allocatable, requested, nonzero, pod_count, passes,
            points, even, leaves, left,
        ):  # fmt: skip
            for row in range(leaves.shape[0]):
                trees[tree, places[layout, at.LEAF, row]] = leaves[row]
            mend_all(c, tree, classes, groups, trees)
            return
    n_normalised = classes[c, at.N_NORMALISED]
    n_nodes = places.shape[2]
    # Raw scores are counted in a first pass; only then can they be normalized.
    for turn in range(2 if n_normalised > 0 else 1):
        is_last = turn == 1 or n_normalised == 0
        for row in range(n_nodes):
            leaf = places[layout, at.LEAF, row]
            if turn == 1:
                if trees[tree, leaf] < 0:
                    continue
            elif not fits(
                c, row, classes, allocatable, requested, pod_count, passes, terms, counts, codes,
                left,
            ):  # fmt: skip
                continue
            if is_last:
                trees[tree, leaf] = points_of(
                    c, row, classes, allocatable, requested, nonzero, points, raw, lines
                )
            else:
                trees[tree, leaf] = 0
                for k in range(n_normalised):
                    note_raw(c, k, raw[static, k, row], classes)
    mend_all(c, tree, classes, groups, trees)


@jit
def fill_plain(
    c, start, end, classes, allocatable, requested, nonzero, pod_count, passes, points, even,
    leaves, left,
):  # fmt: skip
    """Write the points of rows, NOWHERE where the pod does not fit, into `leaves`: int32
    (n_nodes,). For a class of `asks_plainly`. False, with `leaves` undefined, where the shortcuts
    would not be exact: a node without cpu or memory, or with more than 2**46 of it.

    Three loops without branches, each over few enough arrays to be vectorized: a third of the time
    of one loop with early exits. even: see `note_evenness`.
    """
    cpu, memory = classes[c, at.USED], classes[c, at.USED + 4]
    mark_room(
        start, end, classes[c, at.STATIC], classes[c, at.PODS], cpu, memory,
        classes[c, at.EVEN + 1], classes[c, at.EVEN + 3], allocatable, requested, pod_count, passes,
        leaves,
    )  # fmt: skip
    if classes[c, at.N_CARDS] > 0:
        for row in unsigned_range(start, end):
            if leaves[row] >= 0 and not has_cards(c, row, classes, left):
                leaves[row] = NOWHERE
    is_exact = add_use(
        start, end, cpu, memory, classes[c, at.USED + 3], classes[c, at.USED + 7],
        classes[c, at.USE_WEIGHT], allocatable, nonzero, leaves,
    )  # fmt: skip
    if is_exact:
        add_evenness(
            start, end, classes[c, at.STATIC], cpu, memory, classes[c, at.EVEN + 1],
            classes[c, at.EVEN + 3], classes[c, at.EVEN_WEIGHT], allocatable, requested, points,
            even, leaves,
        )  # fmt: skip
    return is_exact


@jit
def note_evenness(c, first, end, classes, allocatable, requested, even):
    """Write `evenness` of rows in their current state; the same for all plain classes."""
    cpu, memory = classes[c, at.USED], classes[c, at.USED + 4]
    for row in unsigned_range(first, end):
        now = min(np.float64(requested[cpu, row]) / np.float64(max(allocatable[cpu, row], 1)), 1.0)
        now -= min(
            np.float64(requested[memory, row]) / np.float64(max(allocatable[memory, row], 1)), 1.0
        )
        even[row] = np.floor((1 - abs(now / 2)) * 100)


@jit
def mark_room(
    start, end, static, slots, cpu, memory, cpu_asked, memory_asked, allocatable, requested,
    pod_count, passes, leaves,
):  # fmt: skip
    """Write 0 for each row with enough free resources, NOWHERE for the others."""
    for row in unsigned_range(start, end):
        has_room = (
            (passes[static, row] != 0)
            & (pod_count[row] < allocatable[slots, row])
            & (cpu_asked <= allocatable[cpu, row] - requested[cpu, row])
            & (memory_asked <= allocatable[memory, row] - requested[memory, row])
        )
        leaves[row] = 0 if has_room else NOWHERE


@jit
def add_use(
    start, end, cpu, memory, cpu_filled, memory_filled, weight, allocatable, nonzero, leaves
):  # fmt: skip
    """Add weighted `use_points` in doubles; False where that is not exact."""
    is_exact = True
    for row in unsigned_range(start, end):
        cpu_whole, memory_whole = allocatable[cpu, row], allocatable[memory, row]
        is_exact &= (cpu_whole > 0) & (cpu_whole < EXACT_BELOW)
        is_exact &= (memory_whole > 0) & (memory_whole < EXACT_BELOW)
        cpu_free = np.float64(max(cpu_whole - nonzero[0, row] - cpu_filled, 0))
        memory_free = np.float64(max(memory_whole - nonzero[1, row] - memory_filled, 0))
        use = np.floor(cpu_free * 100.0 / np.float64(max(cpu_whole, 1)))
        use += np.floor(memory_free * 100.0 / np.float64(max(memory_whole, 1)))
        use = weight * np.floor(use * 0.5)
        leaves[row] = np.int32(use) if leaves[row] >= 0 else NOWHERE
    return is_exact


@jit
def add_evenness(
    start, end, static, cpu, memory, cpu_asked, memory_asked, weight, allocatable, requested,
    points, even, leaves,
):  # fmt: skip
    """Add weighted evenness and the points of node-only plugins, in doubles; see `fill_plain`."""
    for row in unsigned_range(start, end):
        cpu_whole, memory_whole = (
            np.float64(allocatable[cpu, row]), np.float64(allocatable[memory, row])
        )  # fmt: skip
        after = min(np.float64(requested[cpu, row] + cpu_asked) / cpu_whole, 1.0)
        after -= min(np.float64(requested[memory, row] + memory_asked) / memory_whole, 1.0)
        better = np.floor((1 - abs(after / 2)) * 100) - even[row]
        added = weight * (50.0 + np.floor((50.0 + better) * 0.5))
        now = leaves[row] + np.int32(added) + np.int32(points[static, row])
        leaves[row] = now if leaves[row] >= 0 else NOWHERE


# Bounds of points, for classes without a tree.


@jit
def may_be_bounded(c, classes):
    """True for a class of `is_flat` whose points `bound_rows` can bound."""
    return (
        classes[c, at.N_CARDS] == 0
        and 0 <= classes[c, at.USE_WEIGHT] <= WEIGHT_MAX
        and 0 <= classes[c, at.EVEN_WEIGHT] <= WEIGHT_MAX
    )


@jit
def note_shares(
    c, first, end, at_place, classes, allocatable, requested, nonzero, even, shares, marks
):  # fmt: skip
    """Write `shares` of rows in their current state, and their evenness, the same for all plain
    classes; False where a node has no cpu or memory, or more than 2**46 of it. at_place: the place
    of the first row."""
    cpu, memory = classes[c, at.USED], classes[c, at.USED + 4]
    is_exact = True
    for row in unsigned_range(first, end):
        place = np.uint64(at_place) + (row - np.uint64(first))
        cpu_whole, memory_whole = allocatable[cpu, row], allocatable[memory, row]
        is_exact &= (cpu_whole > 0) & (cpu_whole < EXACT_BELOW)
        is_exact &= (memory_whole > 0) & (memory_whole < EXACT_BELOW)
        cpu_unit = 100.0 / np.float64(max(cpu_whole, 1))
        memory_unit = 100.0 / np.float64(max(memory_whole, 1))
        shares[at.CPU_UNIT, place] = np.float32(cpu_unit)
        shares[at.MEMORY_UNIT, place] = np.float32(memory_unit)
        shares[at.CPU_LEFT, place] = np.float32((cpu_whole - nonzero[0, row]) * cpu_unit)
        shares[at.MEMORY_LEFT, place] = np.float32((memory_whole - nonzero[1, row]) * memory_unit)
        shares[at.CPU_FREE, place] = np.float32((cpu_whole - requested[cpu, row]) * cpu_unit)
        shares[at.MEMORY_FREE, place] = np.float32(
            (memory_whole - requested[memory, row]) * memory_unit
        )
        # With the 50 points of a row that stays as even as it is, and 50 more, twice.
        marks[at.EVENNESS, place] = 150 - np.int32(even[row])
    return is_exact


@jit
def is_based_on(c, based, classes):
    """True where the classes have the same base; see `note_base`."""
    return (
        based >= 0
        and classes[c, at.STATIC] == classes[based, at.STATIC]
        and classes[c, at.PODS] == classes[based, at.PODS]
    )


@jit
def note_base(c, first, end, at_place, classes, allocatable, pod_count, passes, points, marks):
    """Write twice the points of node-only plugins for rows that pass them and have room for one
    pod more, CLOSED for the others; False where they are too many. at_place: see `note_shares`."""
    static, slots = classes[c, at.STATIC], classes[c, at.PODS]
    is_small = True
    for row in unsigned_range(first, end):
        base = points[static, row]
        is_small &= (base >= 0) & (base < POINTS_BELOW)
        is_open = (passes[static, row] != 0) & (pod_count[row] + 1 <= allocatable[slots, row])
        place = np.uint64(at_place) + (row - np.uint64(first))
        marks[at.BASE, place] = np.int32(2 * base) if is_open else at.CLOSED
    return is_small


# Rows that are alike. All of them have one bound, so only one of them is bounded. They are the last
# in the order of `marks` and `shares`, whose columns are places in it.


@jit
def unarrange(n_nodes, marks):
    """Every row is at its own place, and bounded by itself."""
    for row in range(n_nodes):
        marks[at.ROW_AT, row] = row
        marks[at.PLACE_OF, row] = row
    marks[at.N_UNLIKE, 0], marks[at.IS_ARRANGED, 0] = n_nodes, 0


@jit
def note_alike(c, other, end, classes, allocatable, requested, nonzero, marks):
    """Write 1 as the bound of each row in the state of this one, 0 for others; returns how many are
    in it. Every row is at its own place."""
    cpu, memory = classes[c, at.USED], classes[c, at.USED + 4]
    base, n_alike = marks[at.BASE, other], 0
    cpu_whole, memory_whole = allocatable[cpu, other], allocatable[memory, other]
    cpu_taken, memory_taken = requested[cpu, other], requested[memory, other]
    cpu_filled, memory_filled = nonzero[0, other], nonzero[1, other]
    for row in unsigned_range(0, end):
        is_alike = (
            (allocatable[cpu, row] == cpu_whole)
            & (allocatable[memory, row] == memory_whole)
            & (requested[cpu, row] == cpu_taken)
            & (requested[memory, row] == memory_taken)
            & (nonzero[0, row] == cpu_filled)
            & (nonzero[1, row] == memory_filled)
            & (marks[at.BASE, row] == base)
        )
        marks[at.BOUND, row] = 1 if is_alike else 0
        n_alike += 1 if is_alike else 0
    return n_alike


@jit
def swap(first, second, shares, marks, salts):
    """Two rows take each other's place; what is found for a pod stays."""
    for i in range(at.N_SHARES):
        shares[i, first], shares[i, second] = shares[i, second], shares[i, first]
    for i in range(at.N_MOVED):
        marks[i, first], marks[i, second] = marks[i, second], marks[i, first]
    salts[first], salts[second] = salts[second], salts[first]
    marks[at.PLACE_OF, marks[at.ROW_AT, first]] = first
    marks[at.PLACE_OF, marks[at.ROW_AT, second]] = second


@jit
def arrange(c, n_nodes, classes, allocatable, requested, nonzero, shares, marks, salts):
    """Put rows in the state that most of them have behind the others, if there is one."""
    n_alike = 0
    for i in range(N_SAMPLES):
        n_alike = note_alike(
            c, n_nodes * (2 * i + 1) // (2 * N_SAMPLES), n_nodes, classes, allocatable, requested,
            nonzero, marks,
        )  # fmt: skip
        if 2 * n_alike >= n_nodes:
            break
    if 2 * n_alike < n_nodes:
        return
    n_unlike, last = n_nodes - n_alike, n_nodes - 1
    for place in range(n_unlike):
        if marks[at.BOUND, place] == 1:
            while marks[at.BOUND, last] == 1:
                last -= 1
            swap(place, last, shares, marks, salts)
            last -= 1
    marks[at.FIRST_ALIKE] = NOWHERE
    marks[at.N_UNLIKE, 0], marks[at.IS_ARRANGED, 0] = n_unlike, 1


@jit
def leave_alike(row, shares, marks, salts):
    """The place of a row, which is like no other from now on."""
    place, n_unlike = np.int64(marks[at.PLACE_OF, row]), np.int64(marks[at.N_UNLIKE, 0])
    if place < n_unlike:
        return place
    swap(place, n_unlike, shares, marks, salts)
    marks[at.FIRST_ALIKE, place // at.BOUND_ROWS] = NOWHERE
    marks[at.N_UNLIKE, 0] = n_unlike + 1
    return n_unlike


@jit_fused
def bound_rows(
    first, end, cpu_filled, memory_filled, cpu_asked, memory_asked, use_weight, even_weight,
    shares, marks,
):  # fmt: skip
    """Write for a pod twice the highest points that a row may have, and 1 more where they may be
    fewer, or the pod may not fit; negative where it does not. Returns the highest of these.

    Percent in single precision is off by less than SLACK, half of what is added here; so where
    nothing changes without that, the whole number is the right one. One division a row is 16 cycles
    for four rows of doubles; here there is none. Amounts: as for `plain_points`, of the pod alone.
    """
    highest = np.int32(NOWHERE)
    for row in unsigned_range(first, end):
        cpu_unit, memory_unit = shares[at.CPU_UNIT, row], shares[at.MEMORY_UNIT, row]
        cpu = max(shares[at.CPU_LEFT, row] - cpu_filled * cpu_unit, NOTHING) + SLACK
        memory = max(shares[at.MEMORY_LEFT, row] - memory_filled * memory_unit, NOTHING) + SLACK
        cpu_free = shares[at.CPU_FREE, row] - cpu_asked * cpu_unit
        memory_free = shares[at.MEMORY_FREE, row] - memory_asked * memory_unit
        after = max(WHOLE - HALF * abs(cpu_free - memory_free), NOTHING)
        use = np.int32(np.int32(cpu) + np.int32(memory))
        evenness = np.int32(after)
        # None is higher than its bound, so their sums are equal only if all are.
        least = np.int32(np.int32(cpu - TWICE_SLACK) + np.int32(memory - TWICE_SLACK))
        least = np.int32(least + np.int32(after - TWICE_SLACK))
        fitting = min(cpu_free, memory_free)
        is_sure = (np.int32(use + evenness) == least) & (fitting >= SLACK)
        better = np.int32(np.int32(evenness + marks[at.EVENNESS, row]) & NOT_ONE)
        total = np.int32(marks[at.BASE, row] + np.int32(use_weight * np.int32(use & NOT_ONE)))
        total = np.int32(total + np.int32(even_weight * better))
        if not is_sure:
            total = np.int32(total + 1)
        if fitting <= -SLACK:
            total = np.int32(NOWHERE)
        marks[at.BOUND, row] = total
        highest = max(highest, total)
    return highest


@jit
def settle(
    c, block, end, level, classes, allocatable, requested, nonzero, pod_count, passes, points, even,
    leaves, left, marks,
):  # fmt: skip
    """Find the points of those rows of a block that may have `level`, the highest bound of all, or
    less; there is one at least. Few are computed one by one, of many those that follow each other
    together. end: place after its last."""
    first = block * at.BOUND_ROWS
    unsure = np.int32(2 * level + 1)
    n_unsure = 0
    for place in unsigned_range(first, end):
        n_unsure += 1 if marks[at.BOUND, place] == unsure else 0
    at_first = first
    while at_first < end:
        row, n_rows = np.int64(marks[at.ROW_AT, at_first]), 1
        if n_unsure > FEW_UNSURE:
            while at_first + n_rows < end and marks[at.ROW_AT, at_first + n_rows] == row + n_rows:
                n_rows += 1
        if n_rows > 1 or marks[at.BOUND, at_first] == unsure:
            # One call for both: each would be compiled on its own.
            fill_plain(
                c, row, row + n_rows, classes, allocatable, requested, nonzero, pod_count, passes,
                points, even, leaves, left,
            )  # fmt: skip
        at_first += n_rows
    highest = np.int32(NOWHERE)
    for place in range(first, end):
        if marks[at.BOUND, place] == unsure:
            marks[at.BOUND, place] = np.int32(2 * leaves[marks[at.ROW_AT, place]])
        highest = max(highest, marks[at.BOUND, place])
    marks[at.HIGHEST_BOUND, block] = highest


@jit
def note_salts(end, rank, salts):
    """Write what of a row's tie-break rank does not depend on the draw."""
    for row in range(end):
        salt = np.uint64(rank[row]) * np.uint64(0x9E3779B97F4A7C15)
        salts[row] = salt ^ (salt >> np.uint64(30))


@jit
def prepare_plain(
    c, n_left, noted, based, classes, allocatable, requested, nonzero, pod_count, passes, points,
    rank, even, shares, marks, salts,
):  # fmt: skip
    """Write what the rows for a class of `is_flat` are found with, unless that is done; returns the
    class that `even` is of, the one that shares and marks are of, and whether they are used.

    noted, based: what was returned last, NOWHERE at first. n_left: pods left in the run.
    """
    n_nodes = even.shape[0]
    if noted < 0:
        noted = c
        note_evenness(c, 0, n_nodes, classes, allocatable, requested, even)
        based = np.int64(NOT_PLAIN)
        if n_left >= BOUNDED_MIN:
            based = np.int64(NOWHERE)
    by_bounds = based != NOT_PLAIN and may_be_bounded(c, classes)
    if by_bounds and not is_based_on(c, based, classes):
        if based < 0 or marks[at.IS_ARRANGED, 0] == 1:
            # Rows that are alike for one class may not be for another.
            unarrange(n_nodes, marks)
            by_bounds = note_shares(
                c, 0, n_nodes, 0, classes, allocatable, requested, nonzero, even, shares, marks
            )
            note_salts(n_nodes, rank, salts)
        by_bounds &= note_base(
            c, 0, n_nodes, 0, classes, allocatable, pod_count, passes, points, marks
        )
        if by_bounds and based < 0 and n_left >= ARRANGED_MIN:
            arrange(c, n_nodes, classes, allocatable, requested, nonzero, shares, marks, salts)
        based = c if by_bounds else np.int64(NOT_PLAIN)
    return noted, based, by_bounds


@jit
def note_placed(
    noted, based, row, classes, allocatable, requested, nonzero, pod_count, passes, points, even,
    shares, marks, salts,
):  # fmt: skip
    """Bring up to date what `prepare_plain` wrote after a pod was placed on a row."""
    note_evenness(noted, row, row + 1, classes, allocatable, requested, even)
    if based >= 0:
        place = leave_alike(row, shares, marks, salts)
        note_shares(
            noted, row, row + 1, place, classes, allocatable, requested, nonzero, even, shares,
            marks,
        )  # fmt: skip
        note_base(
            based, row, row + 1, place, classes, allocatable, pod_count, passes, points, marks
        )


@jit
def rank_bits(salt, spread):
    """The first 31 bits of a tie-break rank, which tell two of them apart nearly always. Its last
    shift changes only the others. spread: what of it depends on the draw."""
    mixed = (salt ^ spread) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(33)


@jit
def is_all_higher(first, bound, draw, smallest, marks, salts):
    """True where no row of a block with this bound can have a smaller tie-break rank. There is no
    branch for each row, so that the compiler uses vectors."""
    spread = np.uint64(draw) ^ (np.uint64(draw) >> np.uint64(30))
    least = smallest >> np.uint64(33)
    n_lower = 0
    for place in unsigned_range(first, first + at.BOUND_ROWS):
        is_lower = (marks[at.BOUND, place] == bound) & (rank_bits(salts[place], spread) <= least)
        n_lower += 1 if is_lower else 0
    return n_lower == 0


@jit
def tie_broken_alike(first, draw, row_at, rank, salts):
    """The row with the smallest tie-break rank of those alike, which begin at this place."""
    spread = np.uint64(draw) ^ (np.uint64(draw) >> np.uint64(30))
    chosen, smallest = np.int64(NOWHERE), np.uint64(0)
    while first < rank.shape[0]:
        least, n_lower = smallest >> np.uint64(33), 1
        if chosen >= 0:
            n_lower = 0
            for place in unsigned_range(first, first + at.BOUND_ROWS):
                n_lower += 1 if rank_bits(salts[place], spread) <= least else 0
        if n_lower > 0:
            for place in range(first, min(first + at.BOUND_ROWS, rank.shape[0])):
                row = np.int64(row_at[place])
                its = tie_break_rank(draw, rank[row])
                if chosen < 0 or its < smallest:
                    chosen, smallest = row, its
        first += at.BOUND_ROWS
    return chosen


@jit
def first_alike(first, rank, marks):
    """The row with the smallest rank of those alike, which begin at this place. The smallest of
    each block is kept until one of its rows leaves."""
    n_nodes = rank.shape[0]
    chosen = np.int64(NOWHERE)
    for block in range(first // at.BOUND_ROWS, (n_nodes + at.BOUND_ROWS - 1) // at.BOUND_ROWS):
        if marks[at.FIRST_ALIKE, block] == NOWHERE:
            row = np.int64(marks[at.ROW_AT, block * at.BOUND_ROWS])
            for place in range(
                block * at.BOUND_ROWS + 1, min((block + 1) * at.BOUND_ROWS, n_nodes)
            ):
                if rank[marks[at.ROW_AT, place]] < rank[row]:
                    row = np.int64(marks[at.ROW_AT, place])
            marks[at.FIRST_ALIKE, block] = row
        row = np.int64(marks[at.FIRST_ALIKE, block])
        if chosen < 0 or rank[row] < rank[chosen]:
            chosen = row
    return chosen


@jit
def bounded_row(
    c, has_draw, draw, classes, allocatable, requested, nonzero, pod_count, passes, points, rank,
    even, leaves, left, shares, marks, salts,
):  # fmt: skip
    """(int64, int64): the row with the most points, as `best_row` finds it in a tree, and its
    points; NOWHERE if the pod fits on none. For a class of `may_be_bounded`."""
    # Of those alike the first stands for all; places between are bounded one by one.
    n_nodes = leaves.shape[0]
    n_blocks = (np.int64(marks[at.N_UNLIKE, 0]) + at.BOUND_ROWS - 1) // at.BOUND_ROWS
    n_bounded = n_blocks + 1 if n_blocks * at.BOUND_ROWS < n_nodes else n_blocks
    for block in range(n_bounded):
        first = block * at.BOUND_ROWS
        marks[at.HIGHEST_BOUND, block] = bound_rows(
            first, first + at.BOUND_ROWS if block < n_blocks else first + 1,
            np.float32(classes[c, at.USED + 3]), np.float32(classes[c, at.USED + 7]),
            np.float32(classes[c, at.EVEN + 1]), np.float32(classes[c, at.EVEN + 3]),
            np.int32(classes[c, at.USE_WEIGHT]), np.int32(classes[c, at.EVEN_WEIGHT]),
            shares, marks,
        )  # fmt: skip
    chosen, level, smallest = np.int64(NOWHERE), np.int64(NOWHERE), np.uint64(0)
    while chosen < 0:
        highest = np.int32(NOWHERE)
        for block in range(n_bounded):
            highest = max(highest, marks[at.HIGHEST_BOUND, block])
        level = np.int64(highest) >> 1
        if level < 0:
            break
        for block in range(n_bounded):
            first, is_alike = block * at.BOUND_ROWS, block == n_blocks
            if marks[at.HIGHEST_BOUND, block] > 2 * level:
                settle(
                    c, block, first + 1 if is_alike else min(first + at.BOUND_ROWS, n_nodes), level,
                    classes, allocatable, requested, nonzero, pod_count, passes, points, even,
                    leaves, left, marks,
                )  # fmt: skip
            if marks[at.HIGHEST_BOUND, block] < 2 * level:
                continue
            if is_alike:
                if has_draw:
                    row = tie_broken_alike(first, draw, marks[at.ROW_AT], rank, salts)
                else:
                    row = first_alike(first, rank, marks)
                its = tie_break_rank(draw, rank[row]) if has_draw else np.uint64(rank[row])
                if chosen < 0 or its < smallest:
                    chosen, smallest = row, its
                continue
            bound = np.int32(2 * level)
            if chosen >= 0 and has_draw and is_all_higher(
                first, bound, draw, smallest, marks, salts
            ):  # fmt: skip
                continue
            for place in range(first, min(first + at.BOUND_ROWS, n_nodes)):
                if marks[at.BOUND, place] == bound:
                    row = np.int64(marks[at.ROW_AT, place])
                    its = tie_break_rank(draw, rank[row]) if has_draw else np.uint64(rank[row])
                    if chosen < 0 or its < smallest:
                        chosen, smallest = row, its
    return chosen, level


@jit
def is_flat(c, classes):
    """True for a class that needs no tree: it has none of its own, and no domain terms."""
    return (
        classes[c, at.TREE] == at.SHARED
        and classes[c, at.N_FEW] == 0
        and classes[c, at.N_GROUPS] == 1
        and classes[c, at.N_TERMS] == 0
        and asks_plainly(c, classes)
    )


@jit
def asks_plainly(c, classes):
    """True for a plain class that `fill_plain` handles."""
    return (
        is_plain(c, classes)
        and classes[c, at.HAS_ROOM] == 1
        and classes[c, at.N_HOST_TERMS] == 0
        and classes[c, at.N_WANTED] == 2
        and classes[c, at.WANTED] == classes[c, at.USED]
        and classes[c, at.WANTED + 2] == classes[c, at.USED + 4]
        and classes[c, at.WANTED + 1] == classes[c, at.EVEN + 1]
        and classes[c, at.WANTED + 3] == classes[c, at.EVEN + 3]
    )


@jit
def mend_all(c, tree, classes, groups, trees):
    """Make every inner node the higher of its children."""
    layout = classes[c, at.LAYOUT]
    for group in range(classes[c, at.N_GROUPS]):
        first = groups[layout, at.FIRST, group]
        for i in range(groups[layout, at.SIZE, group] - 1, 0, -1):
            trees[tree, first + i] = max(trees[tree, first + 2 * i], trees[tree, first + 2 * i + 1])


@jit
def note_change(c, row, was_fitting, fitting, classes, raw):
    """Update the highest raw scores for a row that fits now or no longer; False when one of them
    changed, so that all rows must be evaluated."""
    static = classes[c, at.STATIC]
    for k in range(classes[c, at.N_NORMALISED]):
        value = raw[static, k, row]
        if fitting and not was_fitting:
            if note_raw(c, k, value, classes):
                return False
        elif was_fitting and not fitting and value == classes[c, at.HIGHEST + k]:
            classes[c, at.N_HIGHEST + k] -= 1
            if classes[c, at.N_HIGHEST + k] == 0 and value != 0:
                return False
    return True


@jit
def is_bounded(c, classes, terms):
    """True for a class whose highest raw scores count only rows in open groups: they are computed
    for every pod."""
    if classes[c, at.N_NORMALISED] > 0:
        first = classes[c, at.FIRST_TERM]
        for t in range(first + classes[c, at.N_HOST_TERMS], first + classes[c, at.N_TERMS]):
            if terms[t, at.KIND] < at.EVEN_SOFT:
                return True
    return False


@jit
def set_leaf(c, row, value, classes, groups, places, trees):
    """Write the leaf of a row and update the path above it."""
    layout, tree = classes[c, at.LAYOUT], classes[c, at.TREE]
    leaf = places[layout, at.LEAF, row]
    trees[tree, leaf] = value
    first = groups[layout, at.FIRST, places[layout, at.GROUP, row]]
    i = (leaf - first) >> 1
    while i > 0:
        better = max(trees[tree, first + 2 * i], trees[tree, first + 2 * i + 1])
        if trees[tree, first + i] == better:
            break
        trees[tree, first + i] = better
        i >>= 1


@jit
def catch_up(
    c, n_log, classes, allocatable, requested, nonzero, pod_count, passes, points, raw, terms,
    counts, codes, groups, places, trees, cells, even, leaves, log, left, lines,
):  # fmt: skip
    """Bring the tree of class `c` up to date with the log."""
    seen, layout, tree = classes[c, at.SEEN], classes[c, at.LAYOUT], classes[c, at.TREE]
    classes[c, at.SEEN] = n_log
    is_true = tree != at.SHARED and seen >= 0 and (n_log - seen) * 4 <= places.shape[2] + 64
    bounded = is_bounded(c, classes, terms)
    if is_true:
        for i in range(seen, n_log):
            row = log[i]
            before = trees[tree, places[layout, at.LEAF, row]]
            fitting = fits(
                c, row, classes, allocatable, requested, pod_count, passes, terms, counts, codes,
                left,
            )  # fmt: skip
            is_true = bounded or note_change(c, row, before >= 0, fitting, classes, raw)
            if not is_true:
                break
            now = np.int64(NOWHERE)
            if fitting:
                now = points_of(
                    c, row, classes, allocatable, requested, nonzero, points, raw, lines
                )
            if now != before:
                set_leaf(c, row, now, classes, groups, places, trees)
            if classes[c, at.N_BLOCKS] > 0:
                # Counts of its domain may have changed, too.
                cells[tree, places[layout, at.BLOCK, row], 0] = at.STALE
    if not is_true:
        build(
            c, classes, allocatable, requested, nonzero, pod_count, passes, points, raw, terms,
            counts, codes, groups, places, trees, cells, even, leaves, left, lines,
        )  # fmt: skip


# Points and filters of domains of a group of rows. Working memory: see `arrays.Scratch`.


@jit
def find_floors(c, classes, terms, counts, present, by_term):
    """Find the minimum count that each hard spread term is compared with."""
    first = classes[c, at.FIRST_TERM]
    for t in range(first, first + classes[c, at.N_TERMS]):
        if terms[t, at.KIND] != at.EVEN_HARD:
            continue
        if terms[t, at.N_DOMAINS] < terms[t, at.DOMAINS_MIN]:
            by_term[at.FLOOR, t - first] = 0
            continue
        if terms[t, at.N_LOWEST] == 0:
            find_lowest(t, terms, counts, present)
        by_term[at.FLOOR, t - first] = terms[t, at.LOWEST]


@jit
def find_lowest(t, terms, counts, present):
    """Find the lowest count of a term's domains, and how many have it."""
    start = terms[t, at.FIRST_COUNT]
    lowest, n_lowest = np.int64(2**31 - 1), np.int64(0)
    for place in range(start, start + terms[t, at.N_VALUES]):
        if present[place] == 1:
            if counts[place] < lowest:
                lowest, n_lowest = counts[place], np.int64(0)
            if counts[place] == lowest:
                n_lowest += 1
    terms[t, at.LOWEST], terms[t, at.N_LOWEST] = lowest, n_lowest


@jit
def is_open(c, group, classes, terms, counts, values, by_term):
    """True where the domains of a group admit a pod of class `c`."""
    layout, first = classes[c, at.LAYOUT], classes[c, at.FIRST_TERM]
    has_near, is_near, n_peers = False, True, np.int64(0)
    for t in range(first + classes[c, at.N_HOST_TERMS], first + classes[c, at.N_TERMS]):
        kind = terms[t, at.KIND]
        value = values[layout, terms[t, at.SLOT], group]
        count = np.int64(0)
        if value >= 0:
            count = counts[terms[t, at.FIRST_COUNT] + value]
        if kind == at.APART:
            if count > 0:
                return False
        elif kind == at.NEAR:
            if value < 0:
                return False
            has_near = True
            is_near = is_near and count > 0
            n_peers += terms[t, at.TOTAL]
        elif kind == at.EVEN_HARD:
            if value < 0:
                return False
            skew = count + terms[t, at.MATCHES] - by_term[at.FLOOR, t - first]
            if skew > terms[t, at.SKEW_MAX]:
                return False
    if has_near and not is_near:
        return n_peers == 0 and classes[c, at.MATCHES_ITSELF] == 1
    return True


@jit
def find_open(
    c, classes, terms, counts, present, groups, values, trees, by_group, by_term, picked
):  # fmt: skip
    """Mark and pick the groups with fitting rows whose domains admit the pod; returns how many."""
    layout, tree, n_picked = classes[c, at.LAYOUT], classes[c, at.TREE], 0
    has_domains = classes[c, at.N_TERMS] > classes[c, at.N_HOST_TERMS]
    if has_domains:
        find_floors(c, classes, terms, counts, present, by_term)
    for group in range(classes[c, at.N_GROUPS]):
        is_possible = trees[tree, groups[layout, at.FIRST, group] + 1] >= 0
        if is_possible and has_domains:
            is_possible = is_open(c, group, classes, terms, counts, values, by_term)
        by_group[at.OPEN, group] = 1 if is_possible else 0
        if is_possible:
            picked[n_picked] = group
            n_picked += 1
    return n_picked


# Blocks of groups that are rows.


@jit
def is_alike(c, one, other, classes, terms, counts, values):
    """True where two groups of a block have the same counts for class `c`."""
    layout, inner, first = classes[c, at.LAYOUT], classes[c, at.INNER], classes[c, at.FIRST_TERM]
    for t in range(first + classes[c, at.N_HOST_TERMS], first + classes[c, at.N_TERMS]):
        if terms[t, at.SLOT] == inner:
            start = terms[t, at.FIRST_COUNT]
            count = counts[start + values[layout, inner, one]]
            if count != counts[start + values[layout, inner, other]]:
                return False
    return True


@jit
def find_cells(
    c, block, classes, terms, counts, groups, values, rows_of, rank, trees, cells
):  # fmt: skip
    """Divide the groups of a block with fitting rows into cells, and find the best of each."""
    layout, tree = classes[c, at.LAYOUT], classes[c, at.TREE]
    n_cells, n_max = 0, (cells.shape[2] - 1) // 2
    for group in range(groups[layout, at.BLOCK_FIRST, block], groups[layout, at.BLOCK_END, block]):
        leaf = groups[layout, at.FIRST, group] + 1
        if trees[tree, leaf] < 0:
            continue
        cell = 0
        while cell < n_cells and not is_alike(
            c, group, cells[tree, block, 1 + cell], classes, terms, counts, values
        ):
            cell += 1
        if cell == n_max:
            cells[tree, block, 0] = at.CROWDED
            return
        if cell == n_cells:
            n_cells += 1
            cells[tree, block, 1 + cell] = group
            cells[tree, block, 1 + n_max + cell] = 1
            continue
        cells[tree, block, 1 + n_max + cell] += 1
        best = groups[layout, at.FIRST, cells[tree, block, 1 + cell]] + 1
        if trees[tree, leaf] > trees[tree, best] or (
            trees[tree, leaf] == trees[tree, best]
            and rank[rows_of[layout, leaf]] < rank[rows_of[layout, best]]
        ):
            cells[tree, block, 1 + cell] = group
    cells[tree, block, 0] = n_cells


@jit
def pick_cells(
    c, classes, terms, counts, present, groups, values, rows_of, rank, trees, cells, by_group,
    by_term, picked,
):  # fmt: skip
    """Pick the best group of every cell whose domains admit the pod; returns how many. by_group:
    N_ROWS is written, of the cell."""
    layout, tree, n_picked = classes[c, at.LAYOUT], classes[c, at.TREE], 0
    n_max = (cells.shape[2] - 1) // 2
    find_floors(c, classes, terms, counts, present, by_term)
    for block in range(classes[c, at.N_BLOCKS]):
        if cells[tree, block, 0] == at.STALE:
            find_cells(
                c, block, classes, terms, counts, groups, values, rows_of, rank, trees, cells
            )
        if cells[tree, block, 0] == at.CROWDED:
            first, end = groups[layout, at.BLOCK_FIRST, block], groups[layout, at.BLOCK_END, block]
            for group in range(first, end):
                fitting = trees[tree, groups[layout, at.FIRST, group] + 1] >= 0
                if fitting and is_open(c, group, classes, terms, counts, values, by_term):
                    by_group[at.N_ROWS, group] = 1
                    picked[n_picked] = group
                    n_picked += 1
            continue
        for cell in range(cells[tree, block, 0]):
            group = np.int64(cells[tree, block, 1 + cell])
            if is_open(c, group, classes, terms, counts, values, by_term):
                by_group[at.N_ROWS, group] = cells[tree, block, 1 + n_max + cell]
                picked[n_picked] = group
                n_picked += 1
    return n_picked


@jit
def tie_broken_group(
    c, group, draw, classes, terms, counts, groups, values, places, rows_of, rank, trees
):  # fmt: skip
    """int64: the one of the groups as good as this one, in its cell, whose row has the smallest
    tie-break rank."""
    layout, tree = classes[c, at.LAYOUT], classes[c, at.TREE]
    leaf = groups[layout, at.FIRST, group] + 1
    block = places[layout, at.BLOCK, rows_of[layout, leaf]]
    chosen, smallest = np.int64(NOWHERE), np.uint64(0)
    for other in range(groups[layout, at.BLOCK_FIRST, block], groups[layout, at.BLOCK_END, block]):
        its_leaf = groups[layout, at.FIRST, other] + 1
        if trees[tree, its_leaf] != trees[tree, leaf]:
            continue
        if not is_alike(c, group, other, classes, terms, counts, values):
            continue
        its = tie_break_rank(draw, rank[rows_of[layout, its_leaf]])
        if chosen < 0 or its < smallest:
            chosen, smallest = np.int64(other), its
    return chosen


@jit
def settle_highest(
    c, classes, allocatable, requested, nonzero, points, raw, groups, places, trees, by_group, lines
):  # fmt: skip
    """Find the highest raw scores in open groups; where one changed, evaluate all fitting rows
    again."""
    layout, static, tree = classes[c, at.LAYOUT], classes[c, at.STATIC], classes[c, at.TREE]
    n_nodes, changed = places.shape[2], False
    for k in range(classes[c, at.N_NORMALISED]):
        highest = np.int64(0)
        for row in range(n_nodes):
            in_open_group = by_group[at.OPEN, places[layout, at.GROUP, row]] == 1
            if in_open_group and trees[tree, places[layout, at.LEAF, row]] >= 0:
                highest = max(highest, raw[static, k, row])
        if highest != classes[c, at.HIGHEST + k]:
            classes[c, at.HIGHEST + k] = highest
            changed = True
    if changed:
        for row in range(n_nodes):
            leaf = places[layout, at.LEAF, row]
            if trees[tree, leaf] >= 0:
                trees[tree, leaf] = points_of(
                    c, row, classes, allocatable, requested, nonzero, points, raw, lines
                )
        mend_all(c, tree, classes, groups, trees)


@jit
def find_scored(c, n_picked, classes, terms, values, by_group, picked):
    """Mark the picked groups that soft spread scores: those with all keys, where all are
    required."""
    layout, first = classes[c, at.LAYOUT], classes[c, at.FIRST_TERM]
    for i in range(n_picked):
        group, is_scored = picked[i], np.int64(1)
        if classes[c, at.REQUIRES_ALL] == 1:
            for t in range(first, first + classes[c, at.N_TERMS]):
                value = values[layout, terms[t, at.SLOT], group]
                if terms[t, at.KIND] == at.EVEN_SOFT and value < 0:
                    is_scored = 0
        by_group[at.SCORED, group] = is_scored


@jit
def find_weights(c, n_picked, classes, terms, values, by_group, weights, stamps, logs, picked):
    """Compute the weight of a pod in the domains of each soft spread term."""
    layout, first = classes[c, at.LAYOUT], classes[c, at.FIRST_TERM]
    for t in range(first, first + classes[c, at.N_TERMS]):
        if terms[t, at.KIND] != at.EVEN_SOFT:
            continue
        # A new stamp marks the values that have been seen.
        stamps[0] += 1
        n_distinct = 0
        by_row = classes[c, at.N_BLOCKS] > 0 and terms[t, at.SLOT] == classes[c, at.INNER]
        for i in range(n_picked):
            group = picked[i]
            if by_row:
                n_distinct += by_group[at.SCORED, group] * by_group[at.N_ROWS, group]
            elif by_group[at.SCORED, group] == 1:
                place = 2 + values[layout, terms[t, at.SLOT], group]
                if stamps[place] != stamps[0]:
                    stamps[place] = stamps[0]
                    n_distinct += 1
        weights[t - first] = logs[n_distinct]


@jit
def find_raw(c, n_picked, classes, terms, counts, values, by_group, weights, picked):
    """Compute the raw domain scores of the picked groups; -1 for what is not scored."""
    layout, first = classes[c, at.LAYOUT], classes[c, at.FIRST_TERM]
    for i in range(n_picked):
        group = picked[i]
        affinity, spread = np.int64(0), 0.0
        for t in range(first + classes[c, at.N_HOST_TERMS], first + classes[c, at.N_TERMS]):
            kind = terms[t, at.KIND]
            value = values[layout, terms[t, at.SLOT], group]
            if value < 0 or kind < at.EVEN_SOFT:
                continue
            count = counts[terms[t, at.FIRST_COUNT] + value]
            if kind == at.WEIGHTED_AFFINITY:
                affinity += count
            else:
                more = np.float64(terms[t, at.SKEW_MAX] - 1)
                spread += np.float64(count) * weights[t - first] + more
        whole = np.trunc(spread)
        if abs(spread - whole) >= 0.5:
            whole += np.sign(spread)
        by_group[at.AFFINITY_POINTS, group] = affinity
        by_group[at.SPREAD_POINTS, group] = np.int64(whole)
        if by_group[at.SCORED, group] == 0:
            by_group[at.SPREAD_POINTS, group] = -1


@jit
def normalise_affinity(n_picked, weight, by_group, picked):
    """Normalize raw scores to 0..100 from the lowest to the highest, weighted."""
    lowest, highest = np.int64(2**63 - 1), np.int64(-(2**63))
    for i in range(n_picked):
        lowest = min(lowest, by_group[at.AFFINITY_POINTS, picked[i]])
        highest = max(highest, by_group[at.AFFINITY_POINTS, picked[i]])
    for i in range(n_picked):
        normal = np.int64(0)
        if highest != lowest:
            above = by_group[at.AFFINITY_POINTS, picked[i]] - lowest
            normal = np.int64(100 * (np.float64(above) / np.float64(highest - lowest)))
        by_group[at.AFFINITY_POINTS, picked[i]] = normal * weight


@jit
def normalise_spread(n_picked, weight, by_group, picked):
    """Normalize raw scores to 0..100, the lowest highest, weighted; 0 for what is not scored."""
    highest, lowest, n_scored = np.int64(0), np.int64(2**63 - 1), 0
    for i in range(n_picked):
        group = picked[i]
        if by_group[at.SCORED, group] == 1:
            highest = max(highest, by_group[at.SPREAD_POINTS, group])
            lowest = min(lowest, by_group[at.SPREAD_POINTS, group])
            n_scored += 1
    for i in range(n_picked):
        group = picked[i]
        value, normal = by_group[at.SPREAD_POINTS, group], np.int64(0)
        if highest == 0:
            normal = np.int64(100)
        elif n_scored > 0:
            normal = quotient(100 * (highest + lowest - value), highest)
        # A score equal to the mark is treated as the mark, as in the original.
        if value == -1:
            normal = np.int64(0)
        by_group[at.SPREAD_POINTS, group] = normal * weight


# Choice of one row.


@jit
def tie_break_rank(draw, rank):
    """uint64: pseudo-random rank, the same for the same draw and row rank."""
    mixed = np.uint64(draw) ^ (np.uint64(rank) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@jit
def first_leaf(tree, first, size, trees):
    """int64: the first of a group's best leaves."""
    i = np.int64(1)
    while i < size:
        i *= 2
        if trees[tree, first + i] != trees[tree, first + 1]:
            i += 1
    return first + i


@jit
def tie_broken_leaf(tree, layout, first, size, draw, trees, rows_of, rank, stack):
    """int64: the one of a group's best leaves whose row has the smallest tie-break rank."""
    best = trees[tree, first + 1]
    stack[0] = 1
    depth, chosen, smallest = 1, np.int64(NOWHERE), np.uint64(0)
    while depth > 0:
        depth -= 1
        i = stack[depth]
        if i < size:
            for child in range(2 * i, 2 * i + 2):
                if trees[tree, first + child] == best:
                    stack[depth] = child
                    depth += 1
            continue
        its = tie_break_rank(draw, rank[rows_of[layout, first + i]])
        if chosen < 0 or its < smallest:
            chosen, smallest = first + i, its
    return chosen


@jit
def rate_groups(
    c, n_picked, classes, terms, counts, groups, values, trees, by_group, weights, stamps, logs,
    picked,
):  # fmt: skip
    """Write the points of each picked group's best row into by_group[POINTS]; returns the highest,
    NOWHERE if none is picked."""
    layout, tree = classes[c, at.LAYOUT], classes[c, at.TREE]
    if classes[c, at.SPREAD_WEIGHT] != 0:
        find_scored(c, n_picked, classes, terms, values, by_group, picked)
        find_weights(c, n_picked, classes, terms, values, by_group, weights, stamps, logs, picked)
    if classes[c, at.SPREAD_WEIGHT] != 0 or classes[c, at.AFFINITY_WEIGHT] != 0:
        find_raw(c, n_picked, classes, terms, counts, values, by_group, weights, picked)
        normalise_affinity(n_picked, classes[c, at.AFFINITY_WEIGHT], by_group, picked)
        if classes[c, at.SPREAD_WEIGHT] != 0:
            normalise_spread(n_picked, classes[c, at.SPREAD_WEIGHT], by_group, picked)
    best = np.int64(NOWHERE)
    for i in range(n_picked):
        group = picked[i]
        points = np.int64(trees[tree, groups[layout, at.FIRST, group] + 1])
        if classes[c, at.AFFINITY_WEIGHT] != 0:
            points += by_group[at.AFFINITY_POINTS, group]
        if classes[c, at.SPREAD_WEIGHT] != 0:
            points += by_group[at.SPREAD_POINTS, group]
        by_group[at.POINTS, group] = points
        best = max(best, points)
    return best


@jit
def best_row(
    c, best, n_picked, has_draw, draw, classes, terms, counts, groups, values, places, rows_of,
    rank, trees, by_group, stack, picked,
):  # fmt: skip
    """int64: a row of a picked group with these points. Ties: the first in the snapshot's order, or
    with a draw the row with the smallest tie-break rank."""
    layout, tree = classes[c, at.LAYOUT], classes[c, at.TREE]
    chosen, smallest = np.int64(NOWHERE), np.uint64(0)
    for i in range(n_picked):
        group = picked[i]
        if by_group[at.POINTS, group] != best:
            continue
        if has_draw and classes[c, at.N_BLOCKS] > 0:
            group = tie_broken_group(
                c, group, draw, classes, terms, counts, groups, values, places, rows_of, rank, trees
            )
        first, size = groups[layout, at.FIRST, group], groups[layout, at.SIZE, group]
        if has_draw:
            leaf = tie_broken_leaf(tree, layout, first, size, draw, trees, rows_of, rank, stack)
            row = np.int64(rows_of[layout, leaf])
            its = tie_break_rank(draw, rank[row])
        else:
            row = np.int64(rows_of[layout, first_leaf(tree, first, size, trees)])
            its = np.uint64(rank[row])
        if chosen < 0 or its < smallest:
            chosen, smallest = row, its
    return chosen


@jit
def flat_row(has_draw, draw, rank, leaves):
    """(int64, int64): the row with the most points, as `best_row` finds it in a tree, and its
    points; NOWHERE if there is none."""
    best = np.int32(NOWHERE)
    for row in range(leaves.shape[0]):
        best = max(best, leaves[row])
    chosen, smallest = np.int64(NOWHERE), np.uint64(0)
    if best < 0:
        return chosen, chosen
    for row in range(leaves.shape[0]):
        if leaves[row] == best:
            its = tie_break_rank(draw, rank[row]) if has_draw else np.uint64(rank[row])
            if chosen < 0 or its < smallest:
                chosen, smallest = np.int64(row), its
    return chosen, np.int64(best)


@jit
def plain_row(
    c, by_bounds, has_draw, draw, classes, allocatable, requested, nonzero, pod_count, passes,
    points, rank, even, leaves, left, shares, marks, salts,
):  # fmt: skip
    """(int64, int64): the row with the most points for a class of `is_flat`, and its points;
    NOWHERE if the pod fits on none, NOT_PLAIN where that has to be found by a tree. by_bounds: see
    `prepare_plain`."""
    if by_bounds:
        return bounded_row(
            c, has_draw, draw, classes, allocatable, requested, nonzero, pod_count, passes, points,
            rank, even, leaves, left, shares, marks, salts,
        )  # fmt: skip
    if fill_plain(
        c, 0, leaves.shape[0], classes, allocatable, requested, nonzero, pod_count, passes, points,
        even, leaves, left,
    ):  # fmt: skip
        return flat_row(has_draw, draw, rank, leaves)
    return np.int64(NOT_PLAIN), np.int64(0)


@jit
def few_row(
    c, has_draw, draw, classes, allocatable, requested, nonzero, pod_count, passes, points, raw,
    terms, counts, codes, rank, left, lines,
):  # fmt: skip
    """(int64, int64): the row with the most points among the few of class `c`, as `best_row` finds
    it in a tree, and its points; NOWHERE if the pod fits none of them."""
    best, chosen, smallest = np.int64(NOWHERE), np.int64(NOWHERE), np.uint64(0)
    for k in range(classes[c, at.N_FEW]):
        row = classes[c, at.FEW + k]
        if not fits(
            c, row, classes, allocatable, requested, pod_count, passes, terms, counts, codes, left
        ):
            continue
        total = points_of(c, row, classes, allocatable, requested, nonzero, points, raw, lines)
        its = tie_break_rank(draw, rank[row]) if has_draw else np.uint64(rank[row])
        if chosen < 0 or total > best or (total == best and its < smallest):
            best, chosen, smallest = total, row, its
    return chosen, best


@jit
def place(
    c, row, classes, requested, nonzero, pod_count, terms, counts, present, codes, masks,
    first_effect, effects,
):  # fmt: skip
    """Count a pod of class `c` on a row."""
    for i in range(classes[c, at.N_TAKEN]):
        requested[classes[c, at.TAKEN + 2 * i], row] += classes[c, at.TAKEN + 2 * i + 1]
    nonzero[0, row] += classes[c, at.CPU]
    nonzero[1, row] += classes[c, at.MEMORY]
    pod_count[row] += 1
    for i in range(first_effect[c], first_effect[c + 1]):
        t, count = effects[i, 0], effects[i, 1]
        mask = terms[t, at.MASK]
        if mask >= 0 and masks[mask, row] == 0:
            continue
        value = codes[terms[t, at.KEY], row]
        if value >= 0:
            place = terms[t, at.FIRST_COUNT] + value
            if counts[place] == terms[t, at.LOWEST] and present[place] == 1:
                # The last of them makes it unknown.
                terms[t, at.N_LOWEST] = max(terms[t, at.N_LOWEST] - 1, 0)
            counts[place] += count
            terms[t, at.TOTAL] += count


@jit
def take_cards(c, row, i, classes, left, given):
    """Take GPU cards of a row for the pod `i`, of class `c`, for which there are enough; writes
    which into `given`. Of cards alike the first."""
    milli, order = classes[c, at.CARD_MILLI], classes[c, at.CARD_ORDER]
    for n_given in range(classes[c, at.N_CARDS]):
        best = np.int64(NOWHERE)
        for card in range(left.shape[1]):
            value = left[row, card]
            is_free = value >= milli
            for k in range(n_given):
                is_free &= given[i, k + 1] != card
            if is_free and (
                best < 0
                or (order == at.LEAST_LEFT and value < left[row, best])
                or (order == at.MOST_LEFT and value > left[row, best])
            ):
                best = np.int64(card)
        given[i, n_given + 1] = best
    for k in range(classes[c, at.N_CARDS]):
        left[row, given[i, k + 1]] -= milli
    given[i, 0] = classes[c, at.N_CARDS]


@jit
def tree_row(
    c, has_draw, draw, allocatable, requested, nonzero, points, raw, classes, terms, counts,
    present, groups, values, places, rows_of, rank, trees, cells, by_group, by_term, weights,
    stamps, logs, stack, picked, lines,
):  # fmt: skip
    """(int64, int64): the row for a pod of class `c`, whose tree is up to date, and its points;
    NOWHERE if it fits nowhere."""
    if classes[c, at.N_BLOCKS] > 0:
        n_picked = pick_cells(
            c, classes, terms, counts, present, groups, values, rows_of, rank, trees, cells,
            by_group, by_term, picked,
        )  # fmt: skip
    else:
        n_picked = find_open(
            c, classes, terms, counts, present, groups, values, trees, by_group, by_term, picked
        )
    if is_bounded(c, classes, terms):
        settle_highest(
            c, classes, allocatable, requested, nonzero, points, raw, groups, places, trees,
            by_group, lines,
        )  # fmt: skip
    best = rate_groups(
        c, n_picked, classes, terms, counts, groups, values, trees, by_group, weights, stamps, logs,
        picked,
    )  # fmt: skip
    if best < 0:
        return np.int64(NOWHERE), best
    row = best_row(
        c, best, n_picked, has_draw, draw, classes, terms, counts, groups, values, places, rows_of,
        rank, trees, by_group, stack, picked,
    )  # fmt: skip
    return row, np.int64(best)


@jit
def run(columns, rules, grouping, scratch, heads, draws, rows, totals, left, given, n_log):
    """Place pods in order until one fits nowhere, or one was placed on a row that is behind;
    returns the number of placed pods.

    columns, rules, grouping, scratch: see `arrays`. heads: int64 (n_heads,), classes. draws: uint64
    (n_heads,), or (0,) for the first of ties. rows: int64 (n_heads,), output: the row of each.
    totals: int64 (n_heads,), output: its total score. left: int64 (n_nodes, n_cards), what is left
    of GPU cards, in which placements are counted; none where no class requests any. given: int64
    (n_heads, n_cards + 1), output, zeros before: how many cards, and which; only with `left`.
    n_log: entries in the log; placements are added to it.
    """
    allocatable, requested, nonzero, pod_count, rank = columns
    (classes, passes, points, raw, terms, counts, present, codes, masks, behind, logs,
     first_effect, effects, lines) = rules  # fmt: skip
    groups, values, places, rows_of, trees, log, cells = grouping
    by_group, by_term, weights, stamps, stack, even, leaves, picked, shares, marks, salts = scratch
    has_draw, noted, based = draws.shape[0] > 0, np.int64(NOWHERE), np.int64(NOWHERE)
    for i in range(heads.shape[0]):
        c = heads[i]
        is_plainly_asked, by_bounds = is_flat(c, classes), False
        if is_plainly_asked:
            noted, based, by_bounds = prepare_plain(
                c, heads.shape[0] - i, noted, based, classes, allocatable, requested, nonzero,
                pod_count, passes, points, rank, even, shares, marks, salts,
            )  # fmt: skip
        draw = draws[i] if has_draw else np.uint64(0)
        row, total = np.int64(NOT_PLAIN), np.int64(0)
        if classes[c, at.N_FEW] > 0:
            row, total = few_row(
                c, has_draw, draw, classes, allocatable, requested, nonzero, pod_count, passes,
                points, raw, terms, counts, codes, rank, left, lines,
            )  # fmt: skip
        elif is_plainly_asked:
            row, total = plain_row(
                c, by_bounds, has_draw, draw, classes, allocatable, requested, nonzero, pod_count,
                passes, points, rank, even, leaves, left, shares, marks, salts,
            )  # fmt: skip
        if row == NOT_PLAIN:
            catch_up(
                c, n_log, classes, allocatable, requested, nonzero, pod_count, passes, points, raw,
                terms, counts, codes, groups, places, trees, cells, even, leaves, log, left, lines,
            )  # fmt: skip
            row, total = tree_row(
                c, has_draw, draw, allocatable, requested, nonzero, points, raw, classes, terms,
                counts, present, groups, values, places, rows_of, rank, trees, cells, by_group,
                by_term, weights, stamps, logs, stack, picked, lines,
            )  # fmt: skip
        if row < 0:
            return i
        rows[i], totals[i] = row, total
        place(
            c, row, classes, requested, nonzero, pod_count, terms, counts, present, codes, masks,
            first_effect, effects,
        )  # fmt: skip
        if classes[c, at.N_CARDS] > 0:
            take_cards(c, row, i, classes, left, given)
        if noted >= 0:
            note_placed(
                noted, based, row, classes, allocatable, requested, nonzero, pod_count, passes,
                points, even, shares, marks, salts,
            )  # fmt: skip
        log[n_log] = row
        n_log += 1
        if behind[row] == 1:
            return i + 1
    return heads.shape[0]
