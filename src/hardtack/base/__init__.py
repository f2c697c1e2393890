"""What everything stands on: errors, configuration, registries, the runtime, randomness, progress, files."""
