"""Images that maximise the probability of a class or the activation of a unit."""
