package flags

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// What package flag says of arguments, in which the flag has one dash and a bad
// value is no more than a "parse error".
var (
	badValue   = regexp.MustCompile(`^invalid (?:boolean )?value ("(?s:.*)") for (?:flag )?-([^\s:]+): (?s:(.*))$`)
	notDefined = regexp.MustCompile(`^flag provided but not defined: -((?s:.*))$`)
	badSyntax  = regexp.MustCompile(`^bad flag syntax: ((?s:.*))$`)
	noValue    = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// What is repeated of a misspelt flag, and of a value that is none of a plain kind. The
// one may have a colon for its =, the other may be the next flag, and with it comes a
// secret.
var (
	flagName   = regexp.MustCompile(`^[A-Za-z0-9_-]{0,32}`)
	plainValue = regexp.MustCompile(`^"[A-Za-z0-9_.,%+ -]{0,32}"$`)
)

// misspelt is as much of an argument as can be the name of a flag.
func misspelt(arg string) string {
	name := flagName.FindString(arg)
	if name == arg {
		return name
	}
	return name + "..."
}

// word is what a command might be called; hardly a password is that plain.
var word = regexp.MustCompile(`^[a-z][a-z-]{0,23}$`)

// stray describes an argument that is no flag's, the nth. It may be a flag without its
// dashes, and its value a secret: only words and names are repeated.
func stray(arg string, n int) string {
	name, _, assigned := strings.Cut(arg, "=")
	switch {
	case !word.MatchString(name):
		return fmt.Sprintf("(number %d)", n)
	case assigned:
		return fmt.Sprintf("%q", name+"=...")
	}
	return fmt.Sprintf("%q", name)
}

// explain says of an error of ff.Parse which value is bad, where it was given, and
// what is wanted there.
func explain(fs *flag.FlagSet, err error) error {
	if bad := badVariable(fs); bad != nil && !strings.HasPrefix(err.Error(), "error parsing commandline arguments: ") {
		return bad
	}
	cause := err
	if inner := errors.Unwrap(err); inner != nil {
		cause = inner
	}
	if m := badValue.FindStringSubmatch(cause.Error()); m != nil {
		return refused("--"+m[2], m[1], fs.Lookup(m[2]), m[3])
	}
	if m := notDefined.FindStringSubmatch(cause.Error()); m != nil {
		return fmt.Errorf("there is no flag --%s", misspelt(strings.TrimPrefix(m[1], "-")))
	}
	if m := badSyntax.FindStringSubmatch(cause.Error()); m != nil {
		return fmt.Errorf("bad flag syntax: %s", misspelt(m[1]))
	}
	if m := noValue.FindStringSubmatch(cause.Error()); m != nil {
		return fmt.Errorf("--%s needs a value", m[1])
	}
	return cause
}

// badVariable finds the environment variable that a flag does not take, nil when
// there is none. The error that ff has for it lacks the value.
func badVariable(fs *flag.FlagSet) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var bad error
	fs.VisitAll(func(f *flag.Flag) {
		value := os.Getenv(EnvName(f.Name))
		if bad != nil || given[f.Name] || value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = refused(EnvName(f.Name), fmt.Sprintf("%q", value), f, err.Error())
		}
	})
	return bad
}

// refused is the error for a value. Only plain kinds have the value repeated: what
// a flag with a parser of its own says is its own affair, since some hold secrets.
func refused(where, quoted string, f *flag.Flag, why string) error {
	switch want := wanted(f); {
	case want == "":
		return fmt.Errorf("%s: %s", where, why)
	case !plainValue.MatchString(quoted):
		return fmt.Errorf("%s: want %s", where, want)
	default:
		return fmt.Errorf("%s %s: want %s", where, quoted, want)
	}
}

// wanted says what a flag of one of package flag's own kinds takes, "" of others.
func wanted(f *flag.Flag) string {
	if f == nil {
		return ""
	}
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return ""
	}
	switch getter.Get().(type) {
	case bool:
		return "true or false"
	case time.Duration:
		return "a duration, such as 30s or 5m"
	case int, int64, uint, uint64:
		return "a whole number"
	case float64:
		return "a number"
	default:
		return ""
	}
}
