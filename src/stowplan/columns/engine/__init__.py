"""The compiled engine's ground: what the kernels read and write, and the kernels themselves.

Nothing here knows a rule by name. `arrays` says what stands where; `kernels`, which imports Numba
and is therefore imported only where work is worth compiling for, places runs of pods.
"""
