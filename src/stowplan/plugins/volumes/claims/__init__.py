"""Claims of pods as classes read them: which are alike, and what kernels need of them."""
