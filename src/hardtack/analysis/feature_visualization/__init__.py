"""Images on which the model is sure of a class, or on which a unit is most active."""
