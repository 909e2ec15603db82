package discovery
