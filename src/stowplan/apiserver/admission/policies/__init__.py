"""Admission policies in CEL: ValidatingAdmissionPolicy, MutatingAdmissionPolicy, their bindings."""
