raise ImportError("the package registers environments with gym when it is imported, so evorl does without")
