"""State of a session: jobs, tasks, nodes, queues, resource vectors, the inventory between
sessions."""
