"""HTTP clients: API client, connection pool, credentials, kubeconfig loading, extender client."""
