"""Which pixels a prediction depends on."""
