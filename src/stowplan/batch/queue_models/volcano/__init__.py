"""Volcano's queue model: sessions as Volcano holds them."""
