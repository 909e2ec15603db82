package adapter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Bounds on requests.
const (
	MaxUserDataBytes   = 1 << 20 // a Secret's largest value. Providers accept less, and report that as a Failure
	MaxBodyBytes       = 4 << 20 // of a PUT: user data in which every second byte is escaped as \uXXXX, and the rest
	MaxProviderIDBytes = 512     // the bound of status.providerID
)

// UIDs and hashes become labels of instances. GCE, the strictest cloud, accepts up
// to 63 lower-case letters, digits, _ and -.
var (
	uidPattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	hashPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
)

// DecodePutRequest decodes one PutRequest for the instance called name. Unknown,
// duplicate and wrongly cased fields are errors, and so is what Validate refuses; all
// unwrap to ErrInvalid. An error of reading r is returned as it is.
func DecodePutRequest(r io.Reader, name string) (PutRequest, error) {
	var req PutRequest
	body, err := io.ReadAll(r)
	if err != nil {
		return req, fmt.Errorf("read request body: %w", err)
	}
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' {
		return req, fmt.Errorf("%w: the body is not a JSON object", ErrInvalid)
	}
	strict, err := kjson.UnmarshalStrict(body, &req)
	if err := errors.Join(append(strict, err)...); err != nil {
		return req, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return req, req.Validate(name)
}

// Validate checks what does not depend on the provider, and that name follows from
// the UID. Its error lists everything that is wrong and unwraps to ErrInvalid.
func (r *PutRequest) Validate(name string) error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	problems = append(problems, CheckName(name, r.UID))
	refuse(!bounded(r.Namespace, 63), "namespace %q: want 1 to 63 characters", clip(r.Namespace))
	refuse(!bounded(r.Proxy, 253), "proxy %q: want 1 to 253 characters", clip(r.Proxy))
	refuse(!hashPattern.MatchString(r.SpecHash), "specHash %q: want 1 to 63 lower-case letters, digits, _ and -", clip(r.SpecHash))
	refuse(r.Generation < 0, "generation %d: want 0 or more", r.Generation)
	refuse(r.Port < 1 || r.Port > 65535, "port %d: want 1 to 65535", r.Port)
	refuse(len(r.UserData) > MaxUserDataBytes, "userData has %d bytes: want at most %d", len(r.UserData), MaxUserDataBytes)
	refuse(!utf8.ValidString(r.UserData), "userData is not UTF-8")
	refuse(len(r.Replace) > 128, "replace has %d characters: want at most 128", len(r.Replace))
	return invalid(problems)
}

// CheckName validates a UID, and that name follows from it. Its error unwraps to
// ErrInvalid.
func CheckName(name, uid string) error {
	if !uidPattern.MatchString(uid) {
		return fmt.Errorf("%w: uid %q: want the Proxy's metadata.uid", ErrInvalid, clip(uid))
	}
	if want := v1alpha1.InstanceName(types.UID(uid)); name != want {
		return fmt.Errorf("%w: name %q: the instance of uid %s is called %s", ErrInvalid, clip(name), uid, want)
	}
	return nil
}

func invalid(problems []error) error {
	err := errors.Join(problems...)
	if err == nil || errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

func bounded(s string, limit int) bool { return len(s) > 0 && len(s) <= limit }

// clip bounds input that is quoted in messages and logs.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
