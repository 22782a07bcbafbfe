"""The stores that concepts work on, for the types of tests' parameters."""

import hotcount

Store = hotcount.Memory | hotcount.Redis
AnyStore = Store | hotcount.Database
