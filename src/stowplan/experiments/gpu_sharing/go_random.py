"""Numbers of Go's math/rand generator, by which published experiments drew their orders.

An additive lagged Fibonacci generator over 64-bit integers: each draw is the sum of the draws 607
and 273 before it.

Source: Go, package math/rand, rng.go and rand.go.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

LENGTH, TAP = 607, 273
FIRST_FEED = LENGTH - TAP
N_DRAWS_OF_TABLE = 7_800_000_000_000
"""Go's table is the state of the generator after so many draws, begun with seed 1."""

_MASK_64 = 2**64 - 1
_MASK_63 = 2**63 - 1
_MASK_32 = 2**32 - 1
_SEED_MODULUS = 2**31 - 1


class GoRandom:
    """A generator with the same numbers as Go's rand.New(rand.NewSource(seed))."""

    def __init__(self, seed: int) -> None:
        table = go_table().tolist()
        start = _starting_ring(seed, (40, 20, 0))
        self._ring: list[int] = [number ^ fixed for number, fixed in zip(start, table, strict=True)]
        self._tap, self._feed = 0, FIRST_FEED

    def uint64(self) -> int:
        """The next number, of 64 bits."""
        self._tap = self._tap - 1 if self._tap else LENGTH - 1
        self._feed = self._feed - 1 if self._feed else LENGTH - 1
        number = (self._ring[self._feed] + self._ring[self._tap]) & _MASK_64
        self._ring[self._feed] = number
        return number

    def int63(self) -> int:
        """The next number, of 63 bits."""
        return self.uint64() & _MASK_63

    def below(self, n: int) -> int:
        """A number from 0 to n - 1; n from 1 to 2**31 - 1 (Go's Intn)."""
        if n & (n - 1) == 0:
            return (self.int63() >> 32) & (n - 1)
        most = _MASK_63 // 2**32 - (1 << 31) % n
        number = self.int63() >> 32
        while number > most:
            number = self.int63() >> 32
        return number % n

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Shuffle in place."""
        for i in range(len(values) - 1, 0, -1):
            j = self._below_for_shuffle(i + 1)
            values[i], values[j] = values[j], values[i]

    def _below_for_shuffle(self, n: int) -> int:
        product = (self.int63() >> 31) * n
        if product & _MASK_32 < n:
            least = (2**32 - n) % n
            while product & _MASK_32 < least:
                product = (self.int63() >> 31) * n
        return product >> 32

    def permutation(self, n: int) -> list[int]:
        """The numbers 0 to n - 1 in random order (Go's Perm)."""
        order = [0] * n
        for i in range(n):
            j = self.below(i + 1)
            order[i] = order[j]
            order[j] = i
        return order


@cache
def go_table() -> NDArray[np.uint64]:
    """uint64 (607,): the table with which Go mixes every seed, computed rather than listed.

    Draw N + j is a sum of draws k + j, each times the coefficient of z**k in z**N modulo
    z**607 - z**334 - 1.
    """
    power = _power_of_z(N_DRAWS_OF_TABLE)
    # Draws from -607 on, in their order: draw j is at place (333 - j) mod 607.
    places = (FIRST_FEED - 1 - np.arange(-LENGTH, 0)) % LENGTH
    first = np.array(_starting_ring(1, (20, 10, 0)), dtype=np.uint64)[places]
    draws = np.concatenate((first, np.zeros(LENGTH, dtype=np.uint64)))
    for i in range(LENGTH, 2 * LENGTH):
        draws[i] = draws[i - LENGTH] + draws[i - TAP]
    table = np.zeros(LENGTH, dtype=np.uint64)
    for i in range(LENGTH):
        number = N_DRAWS_OF_TABLE - LENGTH + i
        table[(FIRST_FEED - 1 - number) % LENGTH] = (power * draws[i : i + LENGTH]).sum(
            dtype=np.uint64
        )
    return table


def _starting_ring(seed: int, shifts: tuple[int, int, int]) -> list[int]:
    state = seed % _SEED_MODULUS or 89_482_311
    ring: list[int] = []
    for _ in range(20):
        state = 48_271 * state % _SEED_MODULUS
    for _ in range(LENGTH):
        number = 0
        for shift in shifts:
            state = 48_271 * state % _SEED_MODULUS
            number ^= state << shift
        ring.append(number & _MASK_64)
    return ring


def _power_of_z(exponent: int) -> NDArray[np.uint64]:
    """uint64 (607,): coefficients of z**exponent modulo z**607 - z**334 - 1."""
    power = np.zeros(LENGTH, dtype=np.uint64)
    power[0] = 1
    for bit in f"{exponent:b}":
        square = np.convolve(power, power)
        if bit == "1":
            square = np.concatenate((np.zeros(1, dtype=np.uint64), square))
        power = _reduced(square)
    return power


def _reduced(coefficients: NDArray[np.uint64]) -> NDArray[np.uint64]:
    found = coefficients.copy()
    end = found.shape[0]
    while end > LENGTH:
        # No term of this part adds to another of it.
        start = max(LENGTH, end - TAP)
        part = found[start:end].copy()
        found[start:end] = 0
        found[start - TAP : end - TAP] += part
        found[start - LENGTH : end - LENGTH] += part
        end = start
    return found[:LENGTH]
