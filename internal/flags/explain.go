package flags

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	flag "github.com/spf13/pflag"
)

// The parts of a command line that errors repeat. A misspelt flag may have a colon for
// its =, and a value may be the next flag: in both cases a secret can follow. A word
// is what a command might be called; passwords are hardly that plain.
var (
	flagName   = regexp.MustCompile(`^[A-Za-z0-9_-]{0,32}`)
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_.,%+ -]{0,32}$`)
	word       = regexp.MustCompile(`^[a-z][a-z-]{0,23}$`)
)

// wanted describes the values of pflag's own types. Flags with a parser of their own
// are not listed: their errors are returned as they are, without the value, which may
// be a secret.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a duration, such as 30s or 5m", "float64": "a number",
	"int": "a whole number", "int64": "a whole number", "uint": "a whole number", "uint64": "a whole number",
}

// explain returns an error that states which flag is bad and what it takes, for an
// error of pflag's Parse.
func explain(err error) error {
	if bad, ok := errors.AsType[*flag.InvalidValueError](err); ok {
		return badValue("--"+bad.GetFlag().Name, bad.GetValue(), bad.GetFlag(), bad.Unwrap())
	}
	if unknown, ok := errors.AsType[*flag.NotExistError](err); ok {
		name := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return fmt.Errorf("there is no flag -%s: flags start with --", misspelt(short))
		}
		return fmt.Errorf("there is no flag --%s", misspelt(name))
	}
	if missing, ok := errors.AsType[*flag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s needs a value", missing.GetSpecifiedName())
	}
	if syntax, ok := errors.AsType[*flag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("bad flag syntax: %s", misspelt(syntax.GetSpecifiedFlag()))
	}
	return errors.New("bad flags") // the text may repeat a secret
}

// badValue is the error for a value that the flag f does not take.
func badValue(where, value string, f *flag.Flag, cause error) error {
	switch want := wanted[f.Value.Type()]; {
	case want == "":
		return fmt.Errorf("%s: %w", where, cause)
	case !plainValue.MatchString(value):
		return fmt.Errorf("%s: want %s", where, want)
	default:
		return fmt.Errorf("%s %q: want %s", where, value, want)
	}
}

// missingValue returns an error when a flag took the next flag as its value. Later
// errors would repeat that value, which may contain a password.
func missingValue(fs *flag.FlagSet) (err error) {
	fs.Visit(func(f *flag.Flag) {
		next, isFlag := strings.CutPrefix(f.Value.String(), "--")
		next, _, _ = strings.Cut(next, "=")
		if isFlag && fs.Lookup(next) != nil {
			err = fmt.Errorf("--%s needs a value, and was given the next flag", f.Name)
		}
	})
	return err
}

// misspelt returns the part of an argument that can be the name of a flag.
func misspelt(arg string) string {
	name := flagName.FindString(arg)
	if name == arg {
		return name
	}
	return name + "..."
}

// stray describes the nth argument, which belongs to no flag. It may be a flag without
// its dashes or a secret: only words and names are repeated.
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
