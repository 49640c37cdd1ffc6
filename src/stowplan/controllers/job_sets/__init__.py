"""JobSets and the jobs of Kubeflow: their kinds, and the controllers that make their pods."""
