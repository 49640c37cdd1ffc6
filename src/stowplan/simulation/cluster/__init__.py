"""The simulated cluster: objects, watch streams, controllers, API dispatcher, extenders."""
