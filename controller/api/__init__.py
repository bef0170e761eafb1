"""What REST and metrics ask of the controller."""
