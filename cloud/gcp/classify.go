package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// fromHTTP classifies the error of a call. Its text does not contain secret.
func fromHTTP(op, target string, err error, secret string) error {
	var g *googleapi.Error
	if !errors.As(err, &g) {
		// Without a response the call may have taken effect.
		return &provider.Error{Class: provider.ErrTransient, Op: op, Target: target, Unsure: true, Err: redacted(err, secret)}
	}
	reason := ""
	if len(g.Errors) > 0 {
		reason = g.Errors[0].Reason
	}
	return &provider.Error{
		Class: httpClass(op, g.Code, reason, g.Message), Op: op, Target: target,
		Unsure: g.Code >= http.StatusInternalServerError || g.Code == http.StatusRequestTimeout,
		Err:    redacted(&responseError{code: g.Code, reason: reason, message: g.Message, cause: g}, secret),
	}
}

// responseError is a googleapi.Error without the body and headers that its own
// text includes.
type responseError struct {
	code            int
	reason, message string
	cause           *googleapi.Error
}

func (e *responseError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.code, e.reason, e.message)
}

func (e *responseError) Unwrap() error { return e.cause }

// httpReasons are the classes of the reasons in "Error messages" of the Compute
// documentation. Their status alone is ambiguous.
var httpReasons = map[string]error{
	"rateLimitExceeded":              provider.ErrRateLimited,
	"userRateLimitExceeded":          provider.ErrRateLimited,
	"quotaExceeded":                  provider.ErrQuotaExceeded,
	"dailyLimitExceeded":             provider.ErrQuotaExceeded,
	"resourceNotReady":               provider.ErrTransient,
	"resourceInUseByAnotherResource": provider.ErrTransient,
	"operationInProgress":            provider.ErrTransient,
}

// specErrors matches messages that name a value which comes from the Proxy's spec
// alone. Networks, tags and service accounts may come from the provider config, and
// may be created later.
var specErrors = regexp.MustCompile(`field '(resource\.)?((machineType|disks|scheduling|zone)\b|metadata[^']*\.value')|'[^']*\b(images|machineTypes)/[^']*' was not found`)

func httpClass(op string, code int, reason, message string) error {
	class, known := httpReasons[reason]
	switch {
	case isStockout(reason) || isStockout(message):
		return provider.ErrStockout
	case known:
		return class
	case op == "insert" && slices.Contains(specStatuses, code) && specErrors.MatchString(message):
		return provider.ErrPermanent
	case code == http.StatusNotFound && op != "insert":
		return provider.ErrNotFound
	case code == http.StatusConflict && reason == "alreadyExists":
		return provider.ErrAlreadyExists
	case code == http.StatusTooManyRequests:
		return provider.ErrRateLimited
	}
	return statusClass(code)
}

// transientStatuses are client errors that a retry may fix. 401 is about our own
// credentials and not about the request.
var transientStatuses = []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}

// specStatuses are those of an error about the request itself; operations may have 0.
var specStatuses = []int{0, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge}

// statusClass is the class of an HTTP status without a known reason. A permission, a
// disabled API, billing and a policy end without an edit, so no status is permanent.
func statusClass(code int) error {
	if code >= http.StatusInternalServerError || slices.Contains(transientStatuses, code) {
		return provider.ErrTransient
	}
	return provider.ErrRefused
}

// stockouts are parts of the codes of exhausted capacity, whose variants end in
// _WITH_DETAILS or begin with ZONE_. An exhausted subnetwork has capacity elsewhere.
var stockouts = []string{"RESOURCE_POOL_EXHAUSTED", "IP_SPACE_EXHAUSTED", "STOCKOUT", "INSUFFICIENT_CAPACITY", "insufficientCapacity"}

func isStockout(text string) bool {
	return slices.ContainsFunc(stockouts, func(part string) bool { return strings.Contains(text, part) })
}

// fromOperation classifies the error of an operation of kind insert or delete, nil
// when it succeeded. An error may come without an HTTP status.
func fromOperation(kind, target string, op *computepb.Operation, secret string) error {
	failures := op.GetError().GetErrors()
	code := int(op.GetHttpErrorStatusCode())
	if op.GetError() == nil && (code == 0 || code >= 200 && code < 300) {
		return nil
	}
	class := statusClass(code)
	var texts []string
	for i, f := range failures {
		if c := operationClass(kind, f, code); i == 0 || slices.Index(ranks, c) > slices.Index(ranks, class) {
			class = c
		}
		texts = append(texts, operationText(f))
	}
	if len(texts) == 0 {
		texts = append(texts, fmt.Sprintf("HTTP %d: %s", code, op.GetHttpErrorMessage()))
	}
	return &provider.Error{
		Class: class, Op: kind, Target: target,
		Err: redacted(errors.New(strings.Join(texts, "; ")), secret),
	}
}

// ranks orders classes for operations with several errors: the last one decides.
var ranks = []error{provider.ErrRefused, provider.ErrStockout, provider.ErrQuotaExceeded, provider.ErrPermanent}

// transientCodes are parts of the codes of failures within Compute, and of resources
// that are busy for a moment.
var transientCodes = []string{"INTERNAL_ERROR", "BACKEND_ERROR", "UNAVAILABLE", "TIMEOUT", "NOT_READY", "RESOURCE_IN_USE"}

// operationClass is the class of an operation's error; status is the operation's
// HTTP status, 0 for none.
func operationClass(kind string, f *computepb.Errors, status int) error {
	code := f.GetCode()
	switch {
	case isStockout(code), lacksResources(f):
		return provider.ErrStockout
	case strings.Contains(code, "RATE_LIMIT"), strings.Contains(code, "RATE_EXCEEDED"), strings.Contains(code, "CONCURRENT_OPERATIONS"):
		return provider.ErrRateLimited
	case strings.Contains(code, "QUOTA"):
		return provider.ErrQuotaExceeded
	case code == "RESOURCE_ALREADY_EXISTS":
		return provider.ErrAlreadyExists
	case code == "RESOURCE_NOT_FOUND" && kind == "delete":
		return provider.ErrNotFound
	case slices.ContainsFunc(transientCodes, func(part string) bool { return strings.Contains(code, part) }):
		return provider.ErrTransient
	case kind == "insert" && slices.Contains(specStatuses, status) && specErrors.MatchString(f.GetMessage()):
		return provider.ErrPermanent
	}
	return statusClass(status)
}

// lacksResources reports whether the details state a shortage, whatever the code is.
func lacksResources(f *computepb.Errors) bool {
	return slices.ContainsFunc(f.GetErrorDetails(), func(d *computepb.ErrorDetails) bool {
		return d.GetErrorInfo().GetReason() == "resource_availability"
	})
}

// operationText is code, message and the details that help users.
func operationText(f *computepb.Errors) string {
	text := f.GetCode()
	if f.GetMessage() != "" {
		text += ": " + f.GetMessage()
	}
	for _, d := range f.GetErrorDetails() {
		if q := d.GetQuotaInfo(); q.GetMetricName() != "" {
			text += fmt.Sprintf(" (quota %s, limit %g)", q.GetMetricName(), q.GetLimit())
		}
		if zones := d.GetErrorInfo().GetMetadatas()["zonesAvailable"]; zones != "" {
			text += " (capacity is reported in " + zones + ")"
		}
	}
	return text
}

// window is how many characters in a row of a secret count as a leak. Shorter ones
// are words that any text may share with user data.
const window = 12

// redacted returns err, or an error with the redacted text when it contains part of
// the secret. That error has no cause, since the cause contains the secret.
func redacted(err error, secret string) error {
	text := err.Error()
	if clean := redact(text, secret); clean != text {
		return errors.New(clean)
	}
	return err
}

// redact replaces every part of text that has window or more characters in a row
// in common with one line of secret.
func redact(text, secret string) string {
	windows := map[string]bool{}
	for line := range strings.Lines(secret) {
		line = strings.TrimSpace(line)
		for i := 0; i+window <= len(line); i++ {
			windows[line[i:i+window]] = true
		}
		if len(line) < window && len(line) >= window/2 {
			text = strings.ReplaceAll(text, line, "[redacted]")
		}
	}
	if len(windows) == 0 {
		return text
	}
	var out strings.Builder
	hidden := 0 // text before this offset is secret
	for i := range len(text) {
		if i+window <= len(text) && windows[text[i:i+window]] {
			if i >= hidden {
				out.WriteString("[redacted]")
			}
			hidden = i + window
		}
		if i >= hidden {
			out.WriteByte(text[i])
		}
	}
	return out.String()
}
