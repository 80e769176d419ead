"""Files of a server on disk: where they are, how their failures are named, what is measured of them."""
