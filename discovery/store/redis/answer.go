package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What scripts answer.
const (
	statusOK       = "ok"
	statusOutdated = "outdated"
	statusUnknown  = "unknown"
	statusExpired  = "expired"
	statusSettling = "settling"
	statusFull     = "full"
)

// What scripts answer about what the caller knew before.
const (
	historyGoesOn = "changes" // all that came since is told
	historyLost   = "lost"    // it is of a past that Redis knows nothing of
)

// answer is what every script but load and restore returns.
type answer struct {
	status  string
	now     time.Time
	reload  bool // the mirror cannot be brought up to date by changes alone
	changes []change
}

// change is one entry of the log.
type change struct {
	rev                             int64
	nonce, op, name, value, session string
}

func parseAnswer(reply []any) (answer, error) {
	if len(reply) < 3 {
		return answer{}, fmt.Errorf("script answered %d values", len(reply))
	}
	now, err := strconv.ParseInt(text(reply[1]), 10, 64)
	if err != nil {
		return answer{}, fmt.Errorf("script answered the time %q", text(reply[1]))
	}
	a := answer{status: text(reply[0]), now: at(now), reload: text(reply[2]) != historyGoesOn}
	if len(reply) < 4 {
		return a, nil
	}
	entries, _ := reply[3].([]any)
	for _, entry := range entries {
		c, err := parseChange(entry)
		if err != nil {
			return answer{}, err
		}
		a.changes = append(a.changes, c)
	}
	return a, nil
}

// parseChange reads an entry of the log: its id is 'revision-1', its fields are
// N NONCE, OP NAME, VALUE SESSION (releases before wrote n).
func parseChange(entry any) (change, error) {
	parts, _ := entry.([]any)
	if len(parts) != 2 {
		return change{}, errors.New("the log has an entry without fields")
	}
	fields, _ := parts[1].([]any)
	id, _, _ := strings.Cut(text(parts[0]), "-")
	rev, err := strconv.ParseInt(id, 10, 64)
	if err != nil || len(fields) != 6 {
		return change{}, fmt.Errorf("the log has an entry %q with %d fields", text(parts[0]), len(fields))
	}
	return change{
		rev: rev, nonce: text(fields[1]), op: text(fields[2]), name: text(fields[3]),
		value: text(fields[4]), session: text(fields[5]),
	}, nil
}

// text is a reply that should be a string, "" when it is none.
func text(v any) string {
	s, _ := v.(string)
	return s
}
