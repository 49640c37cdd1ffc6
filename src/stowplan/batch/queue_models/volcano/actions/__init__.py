"""Actions of Volcano, in the order in which a configuration names them."""
