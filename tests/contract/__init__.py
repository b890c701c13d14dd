"""What storage promises on each backend; these tests use only the interface in `storage`."""
