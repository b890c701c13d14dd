"""The pages around the grant, one blueprint a module."""
