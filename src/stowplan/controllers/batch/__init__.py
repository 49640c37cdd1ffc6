"""Controllers of CronJobs and of finished Jobs."""
