"""The rules of Kubernetes 1.13: predicates as filters, priorities as scores from 0 to 10.

A Policy file names them. They are of their own generation where 1.13 decides otherwise than
today's rules, and share with those what is truly the same: selectors, taints, columns.
"""
