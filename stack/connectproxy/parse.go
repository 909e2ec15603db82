package connectproxy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// LineError says which line of a configuration is wrong.
type LineError struct {
	// Line counts from 1; 0 is the file as a whole.
	Line int
	// Err is the fault.
	Err error
}

// Error gives the line and the fault.
func (e *LineError) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

// Unwrap returns the fault.
func (e *LineError) Unwrap() error { return e.Err }

// ReadFile parses the configuration file at path. Its errors name the path, and
// the line where there is one.
func ReadFile(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open proxy configuration: %w", err)
	}
	defer f.Close()
	cfg, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("proxy configuration %s: %w", path, err)
	}
	return cfg, nil
}

// Parse reads the subset of squid.conf that this proxy understands:
//
//	http_port [ADDRESS:]PORT             exactly once
//	tcp_outgoing_address ADDRESS         at most once, without ACLs
//	acl NAME src|dst CIDR...             also "all"; more lines of a name add to it
//	acl NAME port N|N-M...
//	acl NAME method METHOD...
//	http_access allow|deny [!]NAME...
//
// and # comments. The ACLs all, localhost, to_localhost and CONNECT are
// predefined, as in squid. Directives about logs, caches and other things that
// this proxy has not got are skipped; every other one is an error, since
// skipping it might let through what it meant to forbid. Requests that no rule
// matches are denied, also where squid would invert the last rule.
//
// Errors are of type *LineError.
func Parse(r io.Reader) (*Config, error) {
	p := &parser{cfg: &Config{}, acls: predefined()}
	text, err := readBounded(r)
	if err != nil {
		return nil, &LineError{Err: err}
	}
	for line := range strings.Lines(text) {
		p.line++
		if err := p.directive(fields(line)); err != nil {
			return nil, &LineError{Line: p.line, Err: err}
		}
	}
	if p.cfg.Listen.Port() == 0 {
		return nil, &LineError{Err: errors.New("no http_port: say where to listen, such as http_port 127.0.0.1:3128")}
	}
	return p.cfg, nil
}

// readBounded refuses what is too long: half a configuration has half of the
// rules.
func readBounded(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfigBytes+1))
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	if len(b) > maxConfigBytes {
		return "", fmt.Errorf("longer than %d bytes", maxConfigBytes)
	}
	return string(b), nil
}

// fields splits a line into words and drops the comment.
func fields(line string) []string {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
		return words[:i]
	}
	return words
}

type parser struct {
	cfg  *Config
	acls map[string]*ACL
	line int
}

func (p *parser) directive(words []string) error {
	if len(words) == 0 {
		return nil
	}
	name, args := words[0], words[1:]
	switch name {
	case "http_port":
		return p.httpPort(args)
	case "tcp_outgoing_address":
		return p.outgoing(args)
	case "acl":
		return p.acl(args)
	case "http_access":
		return p.access(args)
	}
	return inert(name, args)
}

func (p *parser) httpPort(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("http_port takes one [ADDRESS:]PORT, got %q", args)
	}
	if p.cfg.Listen.Port() != 0 {
		return errors.New("second http_port: this proxy listens on one address")
	}
	listen, err := parseListen(args[0])
	if err != nil {
		return fmt.Errorf("http_port %q: %w", args[0], err)
	}
	p.cfg.Listen = listen
	return nil
}

func parseListen(s string) (netip.AddrPort, error) {
	if !strings.Contains(s, ":") {
		port, err := parsePort(s)
		return netip.AddrPortFrom(netip.Addr{}, port), err
	}
	ap, err := netip.ParseAddrPort(s)
	if err == nil && ap.Port() == 0 {
		err = errors.New("want a port from 1 to 65535")
	}
	return ap, err
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("want a port from 1 to 65535")
	}
	return uint16(n), nil
}

func (p *parser) outgoing(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("tcp_outgoing_address takes one address and no ACLs here, got %q", args)
	}
	if p.cfg.Outgoing.IsValid() {
		return errors.New("second tcp_outgoing_address")
	}
	addr, err := netip.ParseAddr(args[0])
	if err != nil {
		return fmt.Errorf("tcp_outgoing_address: %w", err)
	}
	p.cfg.Outgoing = addr
	return nil
}

func (p *parser) access(args []string) error {
	if len(args) < 2 || (args[0] != "allow" && args[0] != "deny") {
		return fmt.Errorf("http_access takes allow or deny and at least one ACL, got %q", args)
	}
	r := Rule{Allow: args[0] == "allow"}
	for _, word := range args[1:] {
		name, negated := strings.CutPrefix(word, "!")
		acl := p.acls[name]
		if acl == nil {
			return fmt.Errorf("http_access: no acl named %q above this line", name)
		}
		r.Terms = append(r.Terms, Term{Not: negated, ACL: acl})
	}
	p.cfg.Rules = append(p.cfg.Rules, r)
	return nil
}
