"""The kernel engine: compiled kernels and the arrays that they read and write.

No plugin is known by name here. `arrays` defines the layout; `kernels` imports Numba, so it is
imported only where compilation is worthwhile; `numpy_kernels` does the same without.
"""
