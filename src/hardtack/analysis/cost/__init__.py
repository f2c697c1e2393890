"""What a step of training costs, in passes, multiply-adds and seconds, against a step of ordinary training."""
