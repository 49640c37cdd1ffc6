"""Authentication, impersonation, RBAC, request limits and access reviews."""
