"""Preemption kernels: choose nodes and victims for a run of preemptors, one after the other.

The preemptors have one priority and request the same resources; what they request of them makes
their classes. For each class the dry run of every row is kept. A preemptor takes the row where
eviction costs least; its nomination changes what is free there, so that the dry runs of that row
are made again.

Source: kube-scheduler v1.36, plugins/defaultpreemption SelectVictimsOnNode, framework/preemption
pickOneNodeForPreemption.
"""

from __future__ import annotations

import numba
import numpy as np

from stowplan.columns.engine import preemption_arrays as pa


def jit(function):
    """Compile a function on its first call, with a cache on disk where that is writable."""
    options = {"error_model": "numpy", "boundscheck": False, "_nrt": False}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


# The layout is compiled in, and Numba's disk cache only checks this file.
PREEMPTION_ARRAYS = "c02e7f6bf7434b44b5de250502ddd2d691e49991cd9bc33f37368c93935d07f9"


@jit
def code_of(row, one, wanted, table):
    """What is short on a row for a class, a bit for each line of `table` from N_SLOTS on."""
    n_resources = wanted.shape[1]
    code, bit = np.int64(table[pa.N_SLOTS, row] < 1), np.int64(2)
    for half in range(2):
        for r in range(n_resources):
            if wanted[one, r] > table[pa.FREE + half * n_resources + r, row]:
                code |= bit
            bit <<= 1
    return code


@jit
def dry_run(row, one, wanted, table, pods, state, left, victims, place):
    """Evict the pods of a row that may go, and let stay who can, in their order. Writes into
    `state` what comes of it, and who goes into `victims`."""
    n_resources, begin, n_here = wanted.shape[1], table[pa.FIRST, row], table[pa.N_PODS, row]
    n_slots = table[pa.N_SLOTS, row] + n_here - 1
    for i in range(pa.HELPS + 1):
        state[one, row, i] = 0
    fits = n_here > 0 and n_slots >= 0
    for r in range(n_resources):
        free = table[pa.FREE + r, row]
        for pod in range(begin, begin + n_here):
            free += pods[pa.REQUESTS + r, pod]
        left[r] = free - wanted[one, r]
        fits = fits and left[r] >= 0
    if not fits:
        return
    for i in range(n_here):
        pod = begin + i
        stays = n_slots > 0
        for r in range(n_resources):
            stays = stays and pods[pa.REQUESTS + r, pod] <= left[r]
        victims[place, i] = not stays
        if stays:
            n_slots -= 1
            for r in range(n_resources):
                left[r] -= pods[pa.REQUESTS + r, pod]
            continue
        priority, age = pods[pa.PRIORITY, pod], -pods[pa.START, pod]
        if state[one, row, pa.COUNT] == 0 or priority > state[one, row, pa.HIGHEST]:
            state[one, row, pa.HIGHEST], state[one, row, pa.AGE] = priority, age
        elif priority == state[one, row, pa.HIGHEST]:
            state[one, row, pa.AGE] = max(state[one, row, pa.AGE], age)
        state[one, row, pa.VIOLATIONS] += pods[pa.IS_PROTECTED, pod]
        state[one, row, pa.TOTAL] += priority
        state[one, row, pa.COUNT] += 1
    state[one, row, pa.HELPS] = state[one, row, pa.COUNT] > 0


@jit
def is_cheaper(row, other, one, state, table):
    """Whether the first row is chosen before the other, both candidates."""
    for i in range(pa.AGE + 1):
        if state[one, row, i] != state[one, other, i]:
            return state[one, row, i] < state[one, other, i]
    return table[pa.RANK, row] < table[pa.RANK, other]


@jit
def cheapest(one, state, table, best):
    """The candidate of a class that is chosen first, NOWHERE without one."""
    first = pa.NOWHERE
    n_rows = state.shape[1]
    for block in range(best.shape[1]):
        if best[one, block] < pa.NOWHERE:
            found = pa.NOWHERE
            for row in range(block * pa.BLOCK, min(block * pa.BLOCK + pa.BLOCK, n_rows)):
                if state[one, row, pa.HELPS] and (
                    found == pa.NOWHERE or is_cheaper(row, found, one, state, table)
                ):
                    found = row
            best[one, block] = found
        row = best[one, block]
        if row != pa.NOWHERE and (first == pa.NOWHERE or is_cheaper(row, first, one, state, table)):
            first = row
    return first


@jit
def update(row, wanted, table, pods, kinds, state, best, left, victims, place, changed):
    """Evaluate a row for all classes. False where a kind is missing: its class and code are in
    `changed`."""
    for one in range(wanted.shape[0]):
        before = state[one, row, pa.CODE]
        changed[place, one] = pa.NOWHERE
        if before == pa.CLOSED:
            continue
        code = code_of(row, one, wanted, table)
        if kinds[one, code] < 0:
            changed[0, 0], changed[0, 1] = one, code
            return False
        state[one, row, pa.CODE] = code
        changed[place, one] = pa.NOWHERE if code == before else code
        if kinds[one, code] > 0:
            dry_run(row, one, wanted, table, pods, state, left, victims, victims.shape[0] - 1)
        else:
            state[one, row, pa.HELPS] = 0
        best[one, row // pa.BLOCK] = pa.NOWHERE - 1
    return True


@jit
def run(members, wanted, table, pods, kinds, state, best, left, rows, victims, changed):
    """Choose for each preemptor in turn; returns how many have a row, NOWHERE where a kind is
    missing: its class and code are then the first of `changed`.

    All are int64. members: (n_pods,), their classes. wanted: (n_classes, n_resources). table:
    (n_lines, n_rows), in which nominations are counted. pods: (n_lines, n_victims), row by row in
    the order of their reprieve. kinds: (n_classes, n_codes), 1 where evictions may help, 0 where
    not, -1 where that is not known. state: (n_classes, n_rows, N_STATE), with CLOSED where that is
    so. best: (n_classes, n_blocks); left: (n_resources,); both without content. rows: (n_pods,),
    the choices. victims: (n_pods + 1, n_most), which of the pods of the chosen row go. changed:
    (n_pods + 1, n_classes or 2), the code of the chosen row where it has become another one,
    otherwise NOWHERE.
    """
    last = members.shape[0]
    for one in range(best.shape[0]):
        for block in range(best.shape[1]):
            # Also of blocks whose rows are all closed, which are evaluated for no class.
            best[one, block] = pa.NOWHERE - 1
    for row in range(table.shape[1]):
        if not update(row, wanted, table, pods, kinds, state, best, left, victims, last, changed):
            return pa.NOWHERE
    for place in range(last):
        one = members[place]
        row = cheapest(one, state, table, best)
        if row == pa.NOWHERE:
            return place
        rows[place] = row
        dry_run(row, one, wanted, table, pods, state, left, victims, place)
        table[pa.N_SLOTS, row] -= 1
        for r in range(wanted.shape[1]):
            table[pa.FREE + r, row] -= wanted[one, r]
        if not update(row, wanted, table, pods, kinds, state, best, left, victims, place, changed):
            return pa.NOWHERE
    return last
