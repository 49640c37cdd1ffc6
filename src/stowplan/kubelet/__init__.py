"""Hollow nodes: machines that exist only by what they report.

Each node that is not told otherwise has a kubelet here: it beats, admits or refuses what is bound
to it, starts and ends containers by the clock instead of running them, and lets deleted pods go.
What a pod does is said by its annotations (`plan`).
"""
