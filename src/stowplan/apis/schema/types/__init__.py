"""The tables of the API's types, one file for a family, in the notation of `schema.notation`.

Source: names, types and marks of the fields as in k8s.io/api v0.36; the texts are our own.
"""
