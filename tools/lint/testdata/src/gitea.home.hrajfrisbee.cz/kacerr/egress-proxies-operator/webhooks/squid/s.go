package squid
