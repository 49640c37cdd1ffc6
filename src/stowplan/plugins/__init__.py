"""The rules that ship with Stowplan, one file each, named as the field names them."""
