"""Runs many searches at once: a queue of attempts, slots of fixed shape, and the fp32 verifier."""
