"""What sessions of Volcano say to people: jobs, queues, and reasons."""
