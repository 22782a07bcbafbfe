"""hotcount inside other libraries. Each module needs an extra of its own: see its head."""
