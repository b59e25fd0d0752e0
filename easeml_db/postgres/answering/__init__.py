"""Computations beside the loop: tenants in turn, in processes whose time and memory are bounded."""
