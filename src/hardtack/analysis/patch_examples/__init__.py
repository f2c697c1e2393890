"""Images with a few damaged patches, and the confidence that a model keeps in their true class."""
