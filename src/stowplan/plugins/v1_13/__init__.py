"""Predicates of Kubernetes 1.13 as filters, and its priorities as scores from 0 to 10.

Policy files name them. They are separate plugins where 1.13 decides otherwise than today's plugins,
and share with those what is equal: selectors, taints, columns.
"""
