"""Kernel export: `kernels.run` as machine code that is called without Numba.

Importing Numba and loading its cached kernels takes a third of a second; loading machine code with
llvmlite a tenth of that. `exported` needs Numba; `ExportedKernels` needs llvmlite only. The code is
for one processor and its caller keeps it; see `processor`.

Source: Numba 0.61 to 0.68, numba.cfunc and numba.carray; llvmlite 0.44 to 0.50, llvmlite.binding.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import llvmlite.binding as llvm
import msgspec
import numpy as np
from numpy.typing import NDArray

OPTIMIZATION = 3
"""LLVM's optimization level, as Numba's default."""

ARRAY_TYPES = (
    *("int64/2", "int64/2", "int64/2", "int64/1", "int64/1"),
    *("int64/2", "uint8/2", "int64/2", "int64/3", "int64/2", "int64/1", "uint8/1", "int32/2"),
    *("uint8/2", "uint8/1", "float64/1", "int64/1", "int64/2", "int64/2"),
    *("int64/3", "int32/3", "int32/3", "int32/2", "int32/2", "int32/1"),
    *("int32/3", "int64/2", "int64/2", "float64/1", "int64/1", "int64/1", "float64/1"),
    *("int32/1", "int64/1", "float32/2", "int32/2", "uint64/1"),
    *("int64/1", "uint64/1", "int64/1", "int64/1", "int64/2", "int64/2"),
)
"""Type and number of axes of each array of `kernels.run`, in the order of its parameters."""

AXES_MAX = 3

LIBRARY_CALLS = ("memset", "memcpy", "memmove")
"""Functions that LLVM calls without naming them before."""


class KernelCode(msgspec.Struct, frozen=True):
    """Machine code of the kernels.

    processor: see `processor`. symbol: name of the function. needs: names of others, of the process
    or of Numba. code: an object file.
    """

    processor: str
    symbol: str
    needs: tuple[str, ...]
    code: bytes


def processor() -> str:
    """Name and features of this processor, for which code is made."""
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def exported() -> KernelCode:
    """Compile the kernels to machine code for this processor; takes some seconds."""
    numba: Any = importlib.import_module("numba")
    table = numba.types.CPointer(numba.types.voidptr)
    lengths = numba.types.CPointer(numba.types.int64)
    signature = numba.types.int64(table, lengths, numba.types.int64)
    compiled = numba.cfunc(signature)(_run_at())
    module = llvm.parse_assembly(compiled.inspect_llvm())
    outer = [one for one in (*module.functions, *module.global_variables) if one.is_declaration]
    needs = tuple(one.name for one in outer if not one.name.startswith("llvm."))
    code = _target_machine().emit_object(module)
    return KernelCode(processor(), compiled.native_name, (*needs, *LIBRARY_CALLS), code)


def _run_at() -> Any:
    """`kernels.run` as a function of a table of addresses and one of lengths, AXES_MAX for each
    array."""
    from stowplan.columns.engine.kernels import run

    carray = importlib.import_module("numba").carray
    i8, i4, u1, u8 = np.int64, np.int32, np.uint8, np.uint64
    f8, f4 = np.float64, np.float32

    def run_at(at: Any, n: Any, n_log: Any) -> Any:
        columns = (
            carray(at[0], (n[0], n[1]), i8),
            carray(at[1], (n[3], n[4]), i8),
            carray(at[2], (n[6], n[7]), i8),
            carray(at[3], (n[9],), i8),
            carray(at[4], (n[12],), i8),
        )
        rules = (
            carray(at[5], (n[15], n[16]), i8),
            carray(at[6], (n[18], n[19]), u1),
            carray(at[7], (n[21], n[22]), i8),
            carray(at[8], (n[24], n[25], n[26]), i8),
            carray(at[9], (n[27], n[28]), i8),
            carray(at[10], (n[30],), i8),
            carray(at[11], (n[33],), u1),
            carray(at[12], (n[36], n[37]), i4),
            carray(at[13], (n[39], n[40]), u1),
            carray(at[14], (n[42],), u1),
            carray(at[15], (n[45],), f8),
            carray(at[16], (n[48],), i8),
            carray(at[17], (n[51], n[52]), i8),
            carray(at[18], (n[54], n[55]), i8),
        )
        grouping = (
            carray(at[19], (n[57], n[58], n[59]), i8),
            carray(at[20], (n[60], n[61], n[62]), i4),
            carray(at[21], (n[63], n[64], n[65]), i4),
            carray(at[22], (n[66], n[67]), i4),
            carray(at[23], (n[69], n[70]), i4),
            carray(at[24], (n[72],), i4),
            carray(at[25], (n[75], n[76], n[77]), i4),
        )
        scratch = (
            carray(at[26], (n[78], n[79]), i8),
            carray(at[27], (n[81], n[82]), i8),
            carray(at[28], (n[84],), f8),
            carray(at[29], (n[87],), i8),
            carray(at[30], (n[90],), i8),
            carray(at[31], (n[93],), f8),
            carray(at[32], (n[96],), i4),
            carray(at[33], (n[99],), i8),
            carray(at[34], (n[102], n[103]), f4),
            carray(at[35], (n[105], n[106]), i4),
            carray(at[36], (n[108],), u8),
        )
        heads, draws = carray(at[37], (n[111],), i8), carray(at[38], (n[114],), u8)
        rows, totals = carray(at[39], (n[117],), i8), carray(at[40], (n[120],), i8)
        left, given = carray(at[41], (n[123], n[124]), i8), carray(at[42], (n[126], n[127]), i8)
        return run(
            columns, rules, grouping, scratch, heads, draws, rows, totals, left, given, n_log
        )

    return run_at


def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=OPTIMIZATION, jit=True
    )


def _address_of(name: str) -> int:
    """Address of a function or variable of the process. Numba's own are for errors, which kernels
    do not raise: `abort` ends the process if one is called."""
    try:
        found = ctypes.c_char.in_dll(ctypes.pythonapi, name)
    except ValueError:
        found = ctypes.c_char.in_dll(ctypes.pythonapi, "abort")
    return ctypes.addressof(found)


class ExportedKernels:
    """Kernels loaded from machine code; `run` is that of the module `kernels`."""

    def __init__(self, kernels: KernelCode) -> None:
        """Load the code, which must be for this processor."""
        for name in kernels.needs:
            if llvm.address_of_symbol(name) is None:
                llvm.add_symbol(name, _address_of(name))
        # The engine owns the code.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(kernels.code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(kernels.symbol)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._function = ctypes.CFUNCTYPE(number, pointer, pointer, number)(address)
        self._addresses = np.zeros(len(ARRAY_TYPES), dtype=np.uint64)
        self._lengths = np.zeros((len(ARRAY_TYPES), AXES_MAX), dtype=np.int64)
        self._tables = self._addresses.ctypes.data, self._lengths.ctypes.data
        # The arrays that the tables are about: most are the same from call to call.
        self._arrays: list[NDArray[Any] | None] = [None] * len(ARRAY_TYPES)

    def run(
        self,
        columns: tuple[NDArray[Any], ...],
        rules: tuple[NDArray[Any], ...],
        grouping: tuple[NDArray[Any], ...],
        scratch: tuple[NDArray[Any], ...],
        *rest: Any,
    ) -> int:
        """See `kernels.run`; rest: heads, draws, rows, totals, left, given, n_log."""
        *outer, n_log = rest
        known = self._arrays
        for i, array in enumerate((*columns, *rules, *grouping, *scratch, *outer)):
            if array is not known[i]:
                self._take(i, array)
        return int(self._function(*self._tables, n_log))

    def _take(self, i: int, array: NDArray[Any]) -> None:
        """Note an array's address and lengths; the code would not notice a wrong type."""
        found = f"{array.dtype}/{array.ndim}"
        if found != ARRAY_TYPES[i] or not array.flags.c_contiguous:
            raise TypeError(f"array {i} is {found}, wanted {ARRAY_TYPES[i]} in C order")
        self._addresses[i] = array.ctypes.data
        self._lengths[i, : array.ndim] = array.shape
        self._arrays[i] = array
