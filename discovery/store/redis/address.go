package redis

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// ParseURL parses redis://, rediss:// (TLS) and unix:// addresses. Beside the
// parameters of the library (such as db) they take prefix, the prefix of all keys.
// Errors do not quote the address, which may contain a password.
func ParseURL(url string) (*goredis.Options, string, error) {
	base, query, _ := strings.Cut(url, "?")
	prefix, params := "egress-proxies", []string{}
	for _, param := range strings.Split(query, "&") {
		if value, ok := strings.CutPrefix(param, "prefix="); ok {
			prefix = value
		} else if param != "" {
			params = append(params, param)
		}
	}
	if prefix == "" || strings.ContainsAny(prefix, "{}%+") {
		return nil, "", fmt.Errorf("redis address: prefix is empty or has one of {}%%+ in it")
	}
	if len(params) > 0 {
		base += "?" + strings.Join(params, "&")
	}
	o, err := goredis.ParseURL(base)
	if err != nil || !strings.Contains(base, "://") || !dialable(o) {
		return nil, "", fmt.Errorf("redis address: want redis://[[user]:password@]host:port[/database], rediss:// for TLS, or unix:///path, and only parameters that the Redis library knows or prefix")
	}
	return o, prefix, nil
}

func dialable(o *goredis.Options) bool {
	if o.Network == "unix" {
		return o.Addr != ""
	}
	_, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// Quiet disables the log of the Redis library, which is one for the whole process and
// has a line for each failed dial. Calls return the same errors. Main functions call
// it before they open a store.
func Quiet() { goredis.SetLogger(quiet{}) }

type quiet struct{}

// Printf implements the library's interface.
func (quiet) Printf(context.Context, string, ...any) {}
