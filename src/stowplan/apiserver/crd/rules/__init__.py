"""Rules of custom kinds in CEL (`x-kubernetes-validations`)."""
