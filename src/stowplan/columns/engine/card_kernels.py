"""Card kernels: place a run of pods on nodes and on their GPU cards, one after the other.

Per class the score of every row is kept, and the best of each block of rows. A placement changes
one row, which is added to the log; a class that is used again has the rows evaluated that were
logged since its last use, and then their blocks. Where cards alone decide, a pod is placed by what
is kept of blocks; where other plugins prefer rows, all scores are looked at. What the fragmentation
measure needs of a row is kept for all classes: per typical pod how many cards suffice, and how much
is left on the others, so that the effect of a pod on one card is a few additions per typical pod.

The order of floating point operations is that of `plugins/gpu_share`, so the results equal those of
its column walk to the bit.

Source: hkust-adsl/kubernetes-scheduler-simulator (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

import numba
import numpy as np

from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import card_arrays as ca


def jit(function):
    """Compile a function on its first call, with a cache on disk where that is writable."""
    options = {"error_model": "numpy", "boundscheck": False, "_nrt": False}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


# The layouts of both modules of arrays are compiled in, and Numba's disk cache only checks this
# file.
ARRAYS = "8c08e7997f28074a473a6787109d0315035ff9bfd1dbc1703106d019aff3ead3"
CARD_ARRAYS = "a2dfc4541c85441a9b3855d760485a14ffdd882656e6bc544900d8a1ff3461cd"

NOWHERE = -1

NOT_FITTING = -(2**31)
"""The score of a row on which a pod does not fit."""
ABOVE_ALL = 2**31 - 1
"""The lowest score of no row."""
STALE = -1
"""Instead of the number of a block's rows with the highest score: to be found again."""


# Fragmentation.


@jit
def note_row(row, left, n_cards, model, cpu_left, typical, shares, typical_access, suiting, below,
             fragments, totals, sums, chosen):  # fmt: skip
    """Count what typical pods find on the cards of a row, and its fragment."""
    total = np.int64(0)
    for card in range(n_cards[row]):
        total += max(left[row, card], 0)
    totals[row] = total
    for t in range(typical.shape[0]):
        milli = typical[t, ca.TYPICAL_MILLI]
        n_suiting, small = np.int64(0), np.int64(0)
        for card in range(n_cards[row]):
            if left[row, card] >= milli:
                n_suiting += 1
            else:
                small += max(left[row, card], 0)
        suiting[row, t] = n_suiting
        below[row, t] = small
    fragments[row] = fragment(
        row, cpu_left[row], 0, 0, model, typical, shares, typical_access, suiting, below, totals,
        sums, chosen,
    )  # fmt: skip


@jit
def fragment(
    row, cpu_left, n_chosen, milli, model, typical, shares, typical_access, suiting, below, totals,
    sums, chosen,
):  # fmt: skip
    """float64: milli of a row that are fragments, with so much CPU left and `milli` less on each of
    its first `n_chosen` cards of `chosen`."""
    for i in range(ca.N_CATEGORIES):
        sums[i] = 0.0
    total = totals[row] - n_chosen * milli
    for t in range(typical.shape[0]):
        share, wanted = shares[t], typical[t, ca.TYPICAL_MILLI]
        has_cpu = cpu_left >= typical[t, ca.TYPICAL_CPU]
        if wanted == 0:
            sums[ca.XL if has_cpu else ca.XR] += share * np.float64(total)
            continue
        if typical_access[t, model[row]] == 0:
            sums[ca.NO_ACCESS] += share * np.float64(total)
            continue
        n_suiting, small = suiting[row, t], below[row, t]
        for i in range(n_chosen):
            before = chosen[i]
            after = before - milli
            # A card that sufficed no longer does, or a small one becomes smaller.
            if before < wanted:
                small -= milli
            elif after < wanted:
                n_suiting -= 1
                small += after
        has_gpu = n_suiting >= max(typical[t, ca.TYPICAL_NUM], 1)
        if has_gpu and has_cpu:
            sums[ca.Q2] += share * np.float64(small)
        elif has_gpu:
            sums[ca.Q4] += share * np.float64(total)
        elif has_cpu:
            sums[ca.Q2] += share * np.float64(total)
        else:
            sums[ca.Q1] += share * np.float64(total)
    amount = 0.0
    amount += sums[ca.Q1]
    amount += sums[ca.Q2]
    amount += sums[ca.Q4]
    amount += sums[ca.XL]
    amount += sums[ca.XR]
    amount += sums[ca.NO_ACCESS]
    return amount


@jit
def saving_score(before, after):
    """int64: 50 where the fragment stays the same, more where it shrinks."""
    saved = (before - after) / 1000.0
    return np.int64((1.0 / (1.0 + np.exp(-saved))) * 100.0)


# Cards.


@jit
def fits_cards(c, row, left, n_cards, model, requests, access):
    """True where as many cards as class `c` requests have enough left."""
    milli, num = requests[c, ca.MILLI], requests[c, ca.NUM]
    if milli <= 0:
        return True
    if num <= 0 or access[c, model[row]] == 0:
        return False
    n_suiting = np.int64(0)
    for card in range(n_cards[row]):
        if left[row, card] >= milli:
            n_suiting += 1
    return n_suiting >= num


@jit
def take_smallest(row, milli, num, left, n_cards, chosen, places):
    """int64: how many of the `num` cards with the least left that suffice exist; written to
    `chosen` and `places`, the lowest index first among equals."""
    n_chosen = np.int64(0)
    for card in range(n_cards[row]):
        value = left[row, card]
        if value < milli:
            continue
        # Insertion; what is beyond `num` falls off the end.
        i = n_chosen
        while i > 0 and chosen[i - 1] > value:
            if i < num:
                chosen[i], places[i] = chosen[i - 1], places[i - 1]
            i -= 1
        if i < num:
            chosen[i], places[i] = value, card
            n_chosen = min(n_chosen + 1, num)
    return n_chosen


@jit
def is_share(c, requests):
    """True for a part of one card."""
    return requests[c, ca.NUM] == 1 and 0 < requests[c, ca.MILLI] < ca.CARD_MILLI


# Policies.


@jit
def fgd_share(
    c, row, left, n_cards, model, cpu_left, requests, typical, shares, typical_access, suiting,
    below, fragments, totals, sums, chosen, places,
):  # fmt: skip
    """int64: the score of the best card for a part of one, NOWHERE without one; its index is
    places[0]."""
    best, card_of_best = np.int64(NOWHERE), np.int64(NOWHERE)
    milli = requests[c, ca.MILLI]
    for card in range(n_cards[row]):
        value = left[row, card]
        if value < milli:
            continue
        is_known = False
        for other in range(card):
            is_known |= left[row, other] == value
        if is_known:
            # As much is left as of an earlier card, which is preferred.
            continue
        chosen[0] = value
        after = fragment(
            row, cpu_left[row] - requests[c, ca.CPU], 1, milli, model, typical, shares,
            typical_access, suiting, below, totals, sums, chosen,
        )  # fmt: skip
        score = saving_score(fragments[row], after)
        if score > best:
            best, card_of_best = score, card
    places[0] = card_of_best
    return best


@jit
def fgd_score(
    c, row, left, n_cards, model, cpu_left, requests, typical, shares, typical_access, suiting,
    below, fragments, totals, sums, chosen, places,
):  # fmt: skip
    """int64: the score of FGD."""
    cpu, num, milli = requests[c, ca.CPU], requests[c, ca.NUM], requests[c, ca.MILLI]
    if cpu == 0 and milli <= 0:
        return np.int64(ca.SCORE_MAX)
    if is_share(c, requests):
        score = fgd_share(
            c, row, left, n_cards, model, cpu_left, requests, typical, shares, typical_access,
            suiting, below, fragments, totals, sums, chosen, places,
        )  # fmt: skip
        return score if score >= 0 else np.int64(ca.UNCHANGED_SCORE)
    if cpu_left[row] < cpu:
        return np.int64(ca.UNCHANGED_SCORE)
    n_chosen = np.int64(0)
    if milli > 0:
        n_chosen = take_smallest(row, milli, num, left, n_cards, chosen, places)
        if n_chosen < num:
            return np.int64(ca.UNCHANGED_SCORE)
    after = fragment(
        row, cpu_left[row] - cpu, n_chosen, max(milli, 0), model, typical, shares, typical_access,
        suiting, below, totals, sums, chosen,
    )  # fmt: skip
    return saving_score(fragments[row], after)


@jit
def best_fit_score(c, row, cpu_left, requests, totals):
    """int64: the score of BestFit before normalization; 0 where less is left than requested."""
    cpu = cpu_left[row] - requests[c, ca.CPU]
    milli = totals[row] - requests[c, ca.MILLI] * requests[c, ca.NUM]
    if cpu < 0 or milli < 0:
        return np.int64(0)
    share = np.float64(cpu) / 128000.0 * 0.5 + np.float64(milli) / 8000.0 * 0.5
    return np.int64((1.0 - share) * 100.0)


@jit
def quotient_term(free, asked, divisor):
    """float64: the entry of a product; 0 where the divisor is 0."""
    if divisor == 0:
        return 0.0
    return free / np.float64(divisor) * (np.float64(asked) / np.float64(divisor))


@jit
def hyperbolic_tangent(x):
    """float64: tanh of x, at least 0. Source: Cephes mathematical library."""
    square = x * x
    if x >= 0.625:
        return 1.0 - 2.0 / (np.exp(2.0 * min(x, 44.0)) + 1.0)
    above = (-9.64399179425052238628e-1 * square - 9.92877231001918586564e1) * square
    below = ((square + 1.12811678491631932402e2) * square + 2.23548839060100448583e3) * square
    return x + x * square * (
        (above - 1.61468768441708447952e3) / (below + 4.84406305325125486048e3)
    )


@jit
def pair_value(c, row, cpu, gpu, length, norm, n_cards, cpu_capacity, requests):
    """float64: the value of a pair of DotProd, higher for a smaller product."""
    total = requests[c, ca.MILLI] * requests[c, ca.NUM]
    cpu_divisor, gpu_divisor = np.int64(ca.CPU_MAX), np.int64(ca.MILLI_MAX)
    if norm == ca.NODE:
        cpu_divisor, gpu_divisor = cpu_capacity[row], n_cards[row] * ca.CARD_MILLI
    elif norm == ca.POD:
        cpu_divisor, gpu_divisor = requests[c, ca.CPU], total
    product = quotient_term(cpu, requests[c, ca.CPU], cpu_divisor)
    product = (product + quotient_term(gpu, total, gpu_divisor)) / np.float64(length)
    if norm == ca.POD:
        product = hyperbolic_tangent(product / 10.0)
    return 1.0 - product


@jit
def dot_product(
    c, row, options, left, n_cards, cpu_capacity, cpu_left, requests, totals, places,
):  # fmt: skip
    """float64: the highest value above -1 of the pairs of a row, 0 without one. places[0]: the
    first card of the first pair with that value, NOWHERE where no card results."""
    extension, norm = options[ca.EXTENSION], options[ca.NORM]
    total = requests[c, ca.MILLI] * requests[c, ca.NUM]
    cpu = np.float64(cpu_left[row])
    places[0] = NOWHERE
    if extension == ca.MERGE:
        value = pair_value(
            c, row, cpu, np.float64(totals[row]), 2, norm, n_cards, cpu_capacity, requests
        )
        return value if value > -1.0 else 0.0
    n_idle, first_idle, n_partly = np.int64(0), np.int64(NOWHERE), np.int64(0)
    for card in range(n_cards[row]):
        if left[row, card] == ca.CARD_MILLI:
            n_idle += 1
            first_idle = card if first_idle < 0 else first_idle
        elif left[row, card] > 0:
            n_partly += 1
    length = np.int64(2)
    if extension == ca.EXTEND:
        length = 1 + n_partly + (1 if n_idle > 0 else 0)
    best = -1.0
    for card in range(n_cards[row] + 1):
        # The last entry is that of all idle cards.
        is_idle = card == n_cards[row]
        part = ca.CARD_MILLI * n_idle if is_idle else left[row, card]
        if extension == ca.EXTEND:
            exists = n_idle > 0 if is_idle else 0 < part < ca.CARD_MILLI
        else:
            exists = is_idle or (0 <= part < ca.CARD_MILLI and total < ca.CARD_MILLI)
        if not exists or part < total or (extension == ca.DIVIDE and totals[row] == 0):
            continue
        free = cpu
        if extension == ca.DIVIDE:
            free = cpu * np.float64(part) / np.float64(totals[row])
        value = pair_value(
            c, row, free, np.float64(part), length, norm, n_cards, cpu_capacity, requests
        )
        if value > best:
            best = value
            places[0] = first_idle if is_idle else card
    return best if best > -1.0 else 0.0


@jit
def packing_score(c, row, left, n_cards, requests, chosen, places):
    """int64: the score of GpuPacking; 0 where too few cards suffice."""
    milli, num = requests[c, ca.MILLI], requests[c, ca.NUM]
    if milli <= 0:
        return np.int64(0)
    is_idle = True
    for card in range(n_cards[row]):
        is_idle &= left[row, card] == ca.CARD_MILLI or left[row, card] < 0
    if is_idle:
        return np.int64(max(33 - n_cards[row], n_cards[row]))
    n_chosen = take_smallest(row, milli, num, left, n_cards, chosen, places)
    if n_chosen < num:
        return np.int64(0)
    n_idle, percent = np.int64(0), np.int64(0)
    for i in range(n_chosen):
        n_idle += chosen[i] == ca.CARD_MILLI
        percent += chosen[i] * 100 // ca.CARD_MILLI
    if n_idle > 0:
        return np.int64(max(50 - n_idle, 33))
    return np.int64(max(100 - percent // 10, 50))


@jit
def clustering_score(c, row, kind_counts, requests, totals):
    """int64: the score of GpuClustering."""
    kind = requests[c, ca.KIND]
    if kind < 0:
        return np.int64(0)
    n_kinds = np.int64(0)
    for i in range(kind_counts.shape[1]):
        n_kinds += kind_counts[row, i] > 0
    if kind_counts[row, kind] > 0:
        bonus = 75 if n_kinds == 1 else 50
    else:
        bonus = 25 if n_kinds == 0 else 0
    missing = 25 * (ca.MILLI_MAX - totals[row])
    base = missing // ca.MILLI_MAX
    if base < 0 and base * ca.MILLI_MAX != missing:
        base += 1
    return base + bonus


@jit
def score_of(
    c, row, options, left, n_cards, model, cpu_capacity, cpu_left, kind_counts, requests, typical,
    shares, typical_access, suiting, below, fragments, totals, sums, chosen, places,
):  # fmt: skip
    """int64: the score of a row on which the pod fits, before normalization."""
    policy = options[ca.POLICY]
    if policy == ca.FGD:
        return fgd_score(
            c, row, left, n_cards, model, cpu_left, requests, typical, shares, typical_access,
            suiting, below, fragments, totals, sums, chosen, places,
        )  # fmt: skip
    if policy == ca.BEST_FIT:
        return best_fit_score(c, row, cpu_left, requests, totals)
    if policy == ca.DOT_PRODUCT:
        if cpu_left[row] < requests[c, ca.CPU]:
            return np.int64(0)
        value = dot_product(
            c, row, options, left, n_cards, cpu_capacity, cpu_left, requests, totals, places
        )
        return np.int64(100.0 * value)
    if policy == ca.GPU_PACKING:
        return packing_score(c, row, left, n_cards, requests, chosen, places)
    if policy == ca.GPU_CLUSTERING:
        return clustering_score(c, row, kind_counts, requests, totals)
    return np.int64(0)


# Choice of a row.


@jit
def fits(c, row, classes, allocatable, requested, pod_count, passes):
    """True where a pod of class `c` passes every other filter."""
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
    return True


@jit
def evaluate(
    c, row, columns, classes, passes, cards, card_rules, scratch,
):  # fmt: skip
    """Write the score of a row for a class."""
    allocatable, requested, _, pod_count, _ = columns
    left, n_cards, model, cpu_capacity, cpu_left, kind_counts, _, _ = cards
    options, requests, access, typical, shares, typical_access = card_rules
    scores, suiting, below, fragments, totals, _, sums, chosen, places, _, _ = scratch
    score = np.int64(NOT_FITTING)
    if fits(c, row, classes, allocatable, requested, pod_count, passes) and fits_cards(
        c, row, left, n_cards, model, requests, access
    ):
        score = score_of(
            c, row, options, left, n_cards, model, cpu_capacity, cpu_left, kind_counts, requests,
            typical, shares, typical_access, suiting, below, fragments, totals, sums, chosen,
            places,
        )  # fmt: skip
    scores[requests[c, ca.SLOT], row] = score


@jit
def has_same_cards(row, other, left, n_cards, model, cpu_left):
    """True for two rows with the same fragment, and the same score of FGD for each class."""
    if (
        model[row] != model[other]
        or n_cards[row] != n_cards[other]
        or cpu_left[row] != cpu_left[other]
    ):
        return False
    is_same = True
    for card in range(n_cards[row]):
        is_same &= left[row, card] == left[other, card]
    return is_same


@jit
def known_like(row, n_known, known, left, n_cards, model, cpu_left):
    """int64: one of the last rows noted in `known` with the same cards, NOWHERE if there is none.
    n_known: how many were noted so far."""
    for i in range(min(n_known, ca.KNOWN_MAX)):
        if has_same_cards(row, known[i], left, n_cards, model, cpu_left):
            return known[i]
    return np.int64(NOWHERE)


@jit
def evaluate_all(c, columns, classes, passes, cards, card_rules, scratch):
    """Write the score of every row for a class. Most rows of a large cluster have the same cards
    as others, of which a score that costs much is taken."""
    allocatable, requested, _, pod_count, _ = columns
    left, n_cards, model, _, cpu_left, _, _, _ = cards
    options, requests = card_rules[0], card_rules[1]
    scores, known = scratch[0][requests[c, ca.SLOT]], scratch[10]
    n_known = np.int64(0)
    for row in range(scores.shape[0]):
        like = np.int64(NOWHERE)
        if options[ca.POLICY] == ca.FGD:
            if not fits(c, row, classes, allocatable, requested, pod_count, passes):
                scores[row] = NOT_FITTING
                continue
            like = known_like(row, n_known, known, left, n_cards, model, cpu_left)
        if like >= 0:
            scores[row] = scores[like]
            continue
        evaluate(c, row, columns, classes, passes, cards, card_rules, scratch)
        known[n_known % ca.KNOWN_MAX] = row
        n_known += 1


@jit
def note_block(block, scores, blocks, name_rank):
    """Write what is kept of a block for a class. scores: int32 (n_nodes,). blocks: int32
    (N_BLOCK_LINES, n_blocks)."""
    start, end = block * ca.BLOCK_ROWS, min((block + 1) * ca.BLOCK_ROWS, scores.shape[0])
    highest, lowest = np.int32(NOT_FITTING), np.int32(ABOVE_ALL)
    for row in range(np.uint64(start), np.uint64(end)):
        # Unsigned, so that the loop is vectorized; see `kernels.unsigned_range`.
        score = scores[row]
        highest = max(highest, score)
        lowest = min(lowest, np.int32(ABOVE_ALL) if score == NOT_FITTING else score)
    blocks[ca.HIGHEST, block], blocks[ca.LOWEST, block] = highest, lowest
    first, n_highest = np.int64(start), np.int32(0)
    for row in range(start, end):
        if scores[row] == highest:
            if n_highest == 0 or name_rank[row] < name_rank[first]:
                first = row
            n_highest += 1
    blocks[ca.FIRST, block], blocks[ca.N_HIGHEST, block] = first, n_highest


@jit
def catch_up(c, n_log, columns, classes, passes, points, cards, card_rules, scratch, log):
    """Evaluate the rows that were logged since the class was used last, and their blocks."""
    requests, name_rank = card_rules[1], cards[6]
    slot, last = requests[c, ca.SLOT], scratch[5]
    scores, blocks = scratch[0][slot], scratch[9][slot]
    seen = classes[c, at.SEEN]
    classes[c, at.SEEN] = n_log
    if seen < 0 or n_log - seen > 4 * last.shape[0]:
        evaluate_all(c, columns, classes, passes, cards, card_rules, scratch)
        requests[c, ca.IS_LEVEL] = 1 if is_level(points[classes[c, at.STATIC]]) else 0
        for block in range(blocks.shape[1]):
            note_block(block, scores, blocks, name_rank)
        return
    for i in range(seen, n_log):
        row = log[i]
        # Only its last change counts.
        if last[row] == i:
            evaluate(c, row, columns, classes, passes, cards, card_rules, scratch)
            blocks[ca.N_HIGHEST, row // ca.BLOCK_ROWS] = STALE
    for i in range(seen, n_log):
        block = np.int64(log[i]) // ca.BLOCK_ROWS
        if blocks[ca.N_HIGHEST, block] == STALE:
            note_block(block, scores, blocks, name_rank)


@jit
def normal_score(score, policy, lowest, highest):
    """int64: the normalized score, from 0 to 100."""
    if policy == ca.BEST_FIT:
        if lowest == highest:
            return np.int64(0)
        return (score - lowest) * 100 // (highest - lowest)
    return min(max(score, np.int64(0)), np.int64(ca.SCORE_MAX))


@jit
def mixed(draw, key):
    """uint64: a number that is as good as random, the same for the same draw and key."""
    number = np.uint64(draw) ^ (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15))
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@jit
def first_by_name(scores, policy, lowest, highest, best, name_rank):
    """int64, int64: the row with the smallest name among those with the best normalized score, and
    how many have it."""
    first, n_best = np.int64(NOWHERE), np.int64(0)
    for row in range(scores.shape[0]):
        if scores[row] == NOT_FITTING:
            continue
        if normal_score(np.int64(scores[row]), policy, lowest, highest) == best:
            n_best += 1
            if first < 0 or name_rank[row] < name_rank[first]:
                first = row
    return first, n_best


@jit
def is_level(points):
    """True where other plugins give every row as much."""
    differs = False
    for row in range(points.shape[0]):
        differs |= points[row] != points[0]
    return not differs


@jit
def range_of(blocks):
    """int64, int64: the lowest and the highest score; the highest is NOT_FITTING where the pod fits
    nowhere."""
    lowest, highest = np.int32(ABOVE_ALL), np.int32(NOT_FITTING)
    for block in range(blocks.shape[1]):
        lowest = min(lowest, blocks[ca.LOWEST, block])
        highest = max(highest, blocks[ca.HIGHEST, block])
    return np.int64(lowest), np.int64(highest)


@jit
def decides_alone(c, highest, options, requests):
    """True where the row is one of those with the highest score: other plugins prefer none, and no
    other score is normalized to the same."""
    policy = options[ca.POLICY]
    if requests[c, ca.IS_LEVEL] == 0 or options[ca.SCORED] == 0 or policy == ca.RANDOM_NODE:
        return False
    return policy == ca.BEST_FIT or 0 <= highest <= ca.SCORE_MAX


@jit
def choose_by_block(
    lowest, highest, options, has_draw, draw, rank, name_rank, scores, blocks
):  # fmt: skip
    """int64, int64: as `choose`, the row and its normalized score, where the class
    `decides_alone`."""
    best = normal_score(highest, options[ca.POLICY], lowest, highest)
    chosen, smallest, n_highest = np.int64(NOWHERE), np.uint64(0), np.int64(0)
    for block in range(blocks.shape[1]):
        if blocks[ca.HIGHEST, block] != highest:
            continue
        if options[ca.TIES] == ca.NAME:
            row = np.int64(blocks[ca.FIRST, block])
            n_highest += blocks[ca.N_HIGHEST, block]
            if chosen < 0 or name_rank[row] < name_rank[chosen]:
                chosen = row
            continue
        start = block * ca.BLOCK_ROWS
        for row in range(start, min(start + ca.BLOCK_ROWS, scores.shape[0])):
            if scores[row] == highest:
                its = mixed(draw, rank[row]) if has_draw else np.uint64(rank[row])
                if chosen < 0 or its < smallest:
                    chosen, smallest = np.int64(row), its
    # The others of several have one point less.
    return chosen, max(best, np.int64(1)) if n_highest > 1 else best


@jit
def choose(c, points, options, requests, pod_seed, has_draw, draw, rank, cards, scratch):
    """int64, int64: the row with the highest total, and the total; NOWHERE where the pod fits
    nowhere. Ties: the first in the snapshot's order, or with a draw the smallest tie-break rank.
    """
    name_rank, name_key = cards[6], cards[7]
    scores, blocks = scratch[0][requests[c, ca.SLOT]], scratch[9][requests[c, ca.SLOT]]
    lowest, highest = range_of(blocks)
    if highest == NOT_FITTING:
        return np.int64(NOWHERE), np.int64(0)
    if decides_alone(c, highest, options, requests):
        chosen, score = choose_by_block(
            lowest, highest, options, has_draw, draw, rank, name_rank, scores, blocks
        )
        return chosen, points[chosen] + options[ca.WEIGHT] * score
    return choose_by_total(
        lowest, highest, points, options, pod_seed, has_draw, draw, rank, name_rank, name_key,
        scores,
    )  # fmt: skip


@jit
def choose_by_total(
    lowest, highest, points, options, pod_seed, has_draw, draw, rank, name_rank, name_key, scores
):  # fmt: skip
    """int64, int64: as `choose`, by the scores of all rows, of which there are some."""
    policy, weight = options[ca.POLICY], options[ca.WEIGHT]
    best = normal_score(highest, policy, lowest, highest)
    first, n_best = np.int64(NOWHERE), np.int64(0)
    is_scored, is_random = options[ca.SCORED] == 1, policy == ca.RANDOM_NODE
    if is_scored and is_random:
        luckiest = np.uint64(0)
        for row in range(scores.shape[0]):
            if scores[row] != NOT_FITTING:
                number = mixed(pod_seed, name_key[row]) >> np.uint64(1)
                if first < 0 or number > luckiest:
                    first, luckiest = np.int64(row), number
    elif is_scored and options[ca.TIES] == ca.NAME:
        first, n_best = first_by_name(scores, policy, lowest, highest, best, name_rank)
    chosen, total, smallest = np.int64(NOWHERE), np.int64(0), np.uint64(0)
    for row in range(scores.shape[0]):
        if scores[row] == NOT_FITTING:
            continue
        score = np.int64(0)
        if is_scored and is_random:
            score = np.int64(ca.SCORE_MAX) if row == first else np.int64(0)
        elif is_scored:
            score = normal_score(np.int64(scores[row]), policy, lowest, highest)
            if n_best > 1 and score == best:
                score = max(best, np.int64(1)) if row == first else max(best - 1, np.int64(0))
        its_total = points[row] + weight * score
        if chosen >= 0 and its_total < total:
            continue
        its = mixed(draw, rank[row]) if has_draw else np.uint64(rank[row])
        if chosen < 0 or its_total > total or its < smallest:
            chosen, total, smallest = np.int64(row), its_total, its
    return chosen, total


# Placement.


@jit
def choose_cards(c, row, pod_seed, cards, card_rules, scratch):
    """int64: how many cards a pod of class `c` is given; their indices are in `places`."""
    left, n_cards, model, cpu_capacity, cpu_left, _, _, _ = cards
    options, requests, _, typical, shares, typical_access = card_rules
    _, suiting, below, fragments, totals, _, sums, chosen, places, _, _ = scratch
    milli, num = requests[c, ca.MILLI], requests[c, ca.NUM]
    if milli <= 0:
        return np.int64(0)
    if not is_share(c, requests):
        if milli < ca.CARD_MILLI:
            return take_smallest(row, milli, num, left, n_cards, chosen, places)
        n_chosen = np.int64(0)
        for card in range(n_cards[row]):
            if n_chosen < num and left[row, card] >= milli:
                places[n_chosen] = card
                n_chosen += 1
        return n_chosen
    selection = options[ca.SELECTION]
    if selection == ca.FGD_CARD:
        fgd_share(
            c, row, left, n_cards, model, cpu_left, requests, typical, shares, typical_access,
            suiting, below, fragments, totals, sums, chosen, places,
        )  # fmt: skip
    elif selection == ca.DOT_PRODUCT_CARD:
        dot_product(
            c, row, options, left, n_cards, cpu_capacity, cpu_left, requests, totals, places
        )
    else:
        n_suiting, best = np.int64(0), np.int64(NOWHERE)
        for card in range(n_cards[row]):
            value = left[row, card]
            if value >= milli:
                n_suiting += 1
                is_better = best < 0
                if best >= 0 and selection == ca.BEST:
                    is_better = value < left[row, best]
                elif best >= 0 and selection == ca.WORST:
                    is_better = value > left[row, best]
                best = card if is_better else best
        if selection == ca.RANDOM_CARD:
            at_place = np.int64((mixed(pod_seed, 0) >> np.uint64(1)) % np.uint64(n_suiting))
            for card in range(n_cards[row]):
                if left[row, card] >= milli:
                    if at_place == 0:
                        best = card
                    at_place -= 1
        places[0] = best
    return np.int64(1) if places[0] >= 0 else np.int64(0)


@jit
def place(c, row, n_chosen, columns, classes, cards, card_rules, scratch):
    """Count a pod of class `c` on a row and on the cards of `places`."""
    _, requested, nonzero, pod_count, _ = columns
    left, n_cards, model, _, cpu_left, kind_counts, _, _ = cards
    _, requests, _, typical, shares, typical_access = card_rules
    _, suiting, below, fragments, totals, _, sums, chosen, places, _, _ = scratch
    for i in range(classes[c, at.N_TAKEN]):
        requested[classes[c, at.TAKEN + 2 * i], row] += classes[c, at.TAKEN + 2 * i + 1]
    nonzero[0, row] += classes[c, at.CPU]
    nonzero[1, row] += classes[c, at.MEMORY]
    pod_count[row] += 1
    cpu_left[row] -= requests[c, ca.TAKEN_CPU]
    for i in range(n_chosen):
        left[row, places[i]] -= requests[c, ca.MILLI]
    if requests[c, ca.KIND] >= 0:
        kind_counts[row, requests[c, ca.KIND]] += 1
    note_row(
        row, left, n_cards, model, cpu_left, typical, shares, typical_access, suiting, below,
        fragments, totals, sums, chosen,
    )  # fmt: skip


@jit
def note_rows(first, n_log, cards, card_rules, scratch, log):
    """Count the rows that were logged from `first` on; all rows where it is negative."""
    left, n_cards, model, _, cpu_left, _, _, _ = cards
    _, _, _, typical, shares, typical_access = card_rules
    _, suiting, below, fragments, totals, last, sums, chosen, _, _, known = scratch
    n_known = np.int64(0)
    if first < 0:
        for row in range(last.shape[0]):
            last[row] = NOWHERE
            like = known_like(row, n_known, known, left, n_cards, model, cpu_left)
            if like >= 0:
                fragments[row], totals[row] = fragments[like], totals[like]
                for t in range(typical.shape[0]):
                    suiting[row, t], below[row, t] = suiting[like, t], below[like, t]
                continue
            known[n_known % ca.KNOWN_MAX] = row
            n_known += 1
            note_row(
                row, left, n_cards, model, cpu_left, typical, shares, typical_access, suiting,
                below, fragments, totals, sums, chosen,
            )  # fmt: skip
    for i in range(max(first, 0), n_log):
        last[log[i]] = i
    if first >= 0:
        for i in range(first, n_log):
            if last[log[i]] == i:
                note_row(
                    log[i], left, n_cards, model, cpu_left, typical, shares, typical_access,
                    suiting, below, fragments, totals, sums, chosen,
                )  # fmt: skip


@jit
def run(
    columns, rules, cards, card_rules, scratch, heads, draws, pod_seeds, rows, totals, given, group,
    log, n_log,
):  # fmt: skip
    """Place pods in order until one fits nowhere, or one was placed on a row that is behind;
    returns the number of placed pods.

    columns, rules: see `arrays`; of the rules the classes, passes, points and behind. cards,
    card_rules, scratch: see `card_arrays`. heads: int64 (n_heads,), classes. draws: uint64
    (n_heads,), or (0,) for the first of ties. pod_seeds: uint64 (n_heads,), numbers for random
    choices of the group. rows, totals: int64 (n_heads,), output: the row of each, and its total
    score. given: int64 (n_heads, n_cards + 1), output: how many cards, and which. group: class
    number of which SEEN is the position in the log up to which rows are counted.
    """
    classes, passes, points, behind = rules
    rank = columns[4]
    options, requests = card_rules[0], card_rules[1]
    last, places = scratch[5], scratch[8]
    has_draw = draws.shape[0] > 0
    note_rows(classes[group, at.SEEN], n_log, cards, card_rules, scratch, log)
    for i in range(heads.shape[0]):
        c = heads[i]
        catch_up(c, n_log, columns, classes, passes, points, cards, card_rules, scratch, log)
        draw = draws[i] if has_draw else np.uint64(0)
        row, total = choose(
            c, points[classes[c, at.STATIC]], options, requests, pod_seeds[i], has_draw, draw, rank,
            cards, scratch,
        )  # fmt: skip
        n_chosen = np.int64(0)
        if row >= 0:
            n_chosen = choose_cards(c, row, pod_seeds[i], cards, card_rules, scratch)
            if requests[c, ca.MILLI] > 0 and n_chosen < requests[c, ca.NUM]:
                # No choice of cards: what to do is decided with the pod alone.
                row = np.int64(NOWHERE)
        if row < 0:
            classes[group, at.SEEN] = n_log
            return i
        rows[i], totals[i], given[i, 0] = row, total, n_chosen
        for k in range(n_chosen):
            given[i, k + 1] = places[k]
        place(c, row, n_chosen, columns, classes, cards, card_rules, scratch)
        log[n_log] = row
        last[row] = n_log
        n_log += 1
        if behind[row] == 1:
            classes[group, at.SEEN] = n_log
            return i + 1
    classes[group, at.SEEN] = n_log
    return heads.shape[0]


@jit
def fragment_path(cards, expectation, scratch, rows, cpu, milli, given, changes):
    """Write by how much each pod of a sequence changes the fragment of its row.

    cards: as before the first of them; they are counted in it. expectation: see `card_arrays`.
    rows, cpu, milli: int64 (n_pods,), -1 for a pod without a row. given: int64 (n_pods, n_cards +
    1), how many cards, and which. changes: float64 (n_pods,), output.
    """
    left, n_cards, model, _, cpu_left, _, _, _ = cards
    _, typical, shares, typical_access = expectation
    _, suiting, below, fragments, totals, _, sums, chosen, _, _, _ = scratch
    for row in range(left.shape[0]):
        note_row(
            row, left, n_cards, model, cpu_left, typical, shares, typical_access, suiting, below,
            fragments, totals, sums, chosen,
        )  # fmt: skip
    for i in range(rows.shape[0]):
        row = rows[i]
        changes[i] = 0.0
        if row < 0:
            continue
        before = fragments[row]
        cpu_left[row] -= cpu[i]
        for k in range(given[i, 0]):
            left[row, given[i, k + 1]] -= milli[i]
        note_row(
            row, left, n_cards, model, cpu_left, typical, shares, typical_access, suiting, below,
            fragments, totals, sums, chosen,
        )  # fmt: skip
        changes[i] = fragments[row] - before
