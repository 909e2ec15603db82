package redis

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua
var sources embed.FS

// scripts are the operations. Redis runs one script at a time.
type scripts struct {
	acquire, renew, release, report, end, sync, load, fix, restore *goredis.Script
}

func newScripts() scripts {
	return scripts{
		acquire: script("acquire"), renew: script("renew"), release: script("release"),
		report: script("report"), end: script("end"), sync: script("sync"), load: script("load"),
		fix: script("fix"), restore: script("restore"),
	}
}

// script joins an operation with the shared parts. A missing file is a build defect.
func script(name string) *goredis.Script {
	source := ""
	for _, part := range []string{"prelude", "repair", name} {
		b, err := fs.ReadFile(sources, path.Join("lua", part+".lua"))
		if err != nil {
			panic(err)
		}
		source += string(b)
	}
	return goredis.NewScript(source)
}

// Statuses of the scripts.
const (
	statusOK         = "ok"
	statusOutdated   = "outdated"
	statusUnknown    = "unknown"
	statusExpired    = "expired"
	statusRecovering = "recovering"
	statusFull       = "full"
)

// How the caller's revision relates to the log: see history in repair.lua.
const (
	historyChanges = "changes"
	historyLost    = "lost"
)

// answer is what every script but load and restore returns.
type answer struct {
	status  string
	now     time.Time
	reload  bool // the changes do not bring the mirror up to date
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
	a := answer{status: text(reply[0]), now: at(now), reload: text(reply[2]) != historyChanges}
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
// 'nonce' NONCE, OP NAME, VALUE SESSION.
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

// text is a string of a reply, "" for any other type.
func text(v any) string {
	s, _ := v.(string)
	return s
}
