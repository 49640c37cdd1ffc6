"""HTTP client side: API client, connection pool, credentials, kubeconfig loading, extender
client."""
