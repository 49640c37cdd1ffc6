"""StatefulSet controller: pods with stable names and claims, created and updated in order."""
