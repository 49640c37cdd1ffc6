"""The scheduler server: informers, API dispatcher, leader election, decision log, metrics,
status."""
