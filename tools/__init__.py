"""Small scripts for developers; no part of the package."""
