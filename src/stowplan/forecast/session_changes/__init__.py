"""The smallest changes that let a session start a job."""
