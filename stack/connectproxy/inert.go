package connectproxy

import (
	"fmt"
	"strings"
)

// inert accepts the directives whose absence here changes nothing that a client
// or a destination can see: there are no caches, log files, helper processes or
// other protocols, and headers that betray a client are always dropped. Where
// a directive has a value that would not be honoured, only the other is
// accepted.
func inert(name string, args []string) error {
	got := strings.Join(args, " ")
	switch name {
	case "via":
		return only(name, got, "off")
	case "forwarded_for":
		return only(name, got, "delete")
	case "cache":
		return only(name, got, "deny all")
	case "icp_port", "htcp_port", "snmp_port":
		return only(name, got, "0")
	case "pid_filename", "coredump_dir", "visible_hostname", "unique_hostname",
		"access_log", "cache_log", "cache_store_log", "logfile_rotate", "logformat",
		"buffered_logs", "strip_query_terms", "debug_options", "umask", "workers",
		"cache_mem", "memory_pools", "maximum_object_size", "maximum_object_size_in_memory",
		"max_filedescriptors", "shutdown_lifetime", "pinger_enable", "netdb_filename",
		"httpd_suppress_version_string", "cachemgr_passwd", "digest_generation", "error_directory",
		"client_persistent_connections", "server_persistent_connections",
		"half_closed_clients", "dns_v4_first", "connect_timeout", "read_timeout",
		"request_timeout", "client_lifetime", "forward_timeout":
		return nil
	}
	return fmt.Errorf("unknown directive %q: the built-in proxy cannot tell whether it may be ignored", name)
}

func only(name, got, want string) error {
	if got != want {
		return fmt.Errorf("%s %s: the built-in proxy only does %q", name, got, name+" "+want)
	}
	return nil
}
