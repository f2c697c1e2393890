"""Attacks of other packages by name, where these are installed: `foolbox:LinfPGD`. One file for each package."""
