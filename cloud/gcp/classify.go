package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// fromHTTP classifies the error of a call. secret is what its text must not
// show.
func fromHTTP(op, target string, err error, secret string) error {
	var g *googleapi.Error
	if !errors.As(err, &g) {
		// No answer: the call may have arrived.
		return &provider.Error{Class: provider.ErrTransient, Op: op, Target: target, Unsure: true, Err: redacted(err, secret)}
	}
	reason := ""
	if len(g.Errors) > 0 {
		reason = g.Errors[0].Reason
	}
	return &provider.Error{
		Class: httpClass(op, g.Code, reason, g.Message), Op: op, Target: target,
		Unsure: g.Code >= http.StatusInternalServerError || g.Code == http.StatusRequestTimeout,
		Err:    redacted(&answerError{code: g.Code, reason: reason, message: g.Message, cause: g}, secret),
	}
}

// answerError is a googleapi.Error without the body and headers that its own
// text repeats.
type answerError struct {
	code            int
	reason, message string
	cause           *googleapi.Error
}

func (e *answerError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.code, e.reason, e.message)
}

func (e *answerError) Unwrap() error { return e.cause }

// httpClass decides by status and reason. The reasons are those of "Error
// messages" in the Compute documentation.
func httpClass(op string, code int, reason, message string) error {
	if isStockout(reason) || isStockout(message) {
		return provider.ErrStockout
	}
	switch reason {
	case "rateLimitExceeded", "userRateLimitExceeded":
		return provider.ErrRateLimited
	case "quotaExceeded", "dailyLimitExceeded":
		return provider.ErrQuotaExceeded
	case "resourceNotReady", "resourceInUseByAnotherResource", "operationInProgress":
		return provider.ErrTransient
	}
	switch {
	case code == http.StatusNotFound && op != "insert":
		return provider.ErrNotFound
	case code == http.StatusConflict && reason == "alreadyExists":
		return provider.ErrAlreadyExists
	case code == http.StatusTooManyRequests:
		return provider.ErrRateLimited
	}
	return statusClass(code)
}

// statusClass is what a bare HTTP status says. 401 is about our own sign-in and
// not about what was asked for.
func statusClass(code int) error {
	switch {
	case code == http.StatusUnauthorized,
		code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooManyRequests:
		return provider.ErrTransient
	case code >= http.StatusBadRequest && code < http.StatusInternalServerError:
		return provider.ErrPermanent
	}
	return provider.ErrTransient
}

// isStockout finds ZONE_RESOURCE_POOL_EXHAUSTED, its _WITH_DETAILS variant and
// what may follow.
func isStockout(text string) bool {
	return strings.Contains(text, "RESOURCE_POOL_EXHAUSTED") || text == "STOCKOUT"
}

// fromOperation classifies how an operation of kind insert or delete ended, nil
// when it ended well. An error without an HTTP status is an error all the same.
func fromOperation(kind, target string, op *computepb.Operation, secret string) error {
	failures := op.GetError().GetErrors()
	code := int(op.GetHttpErrorStatusCode())
	if op.GetError() == nil && (code == 0 || code >= 200 && code < 300) {
		return nil
	}
	class := statusClass(code)
	var texts []string
	for i, f := range failures {
		if c := operationClass(kind, f.GetCode(), code); i == 0 || rank(c) > rank(class) {
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

// operationClass decides by the code of an operation's error; status is the
// operation's, 0 when it has none.
func operationClass(kind, code string, status int) error {
	switch {
	case isStockout(code):
		return provider.ErrStockout
	case strings.Contains(code, "RATE_LIMIT"), strings.Contains(code, "RATE_EXCEEDED"):
		return provider.ErrRateLimited
	case strings.Contains(code, "QUOTA"):
		return provider.ErrQuotaExceeded
	case code == "RESOURCE_ALREADY_EXISTS":
		return provider.ErrAlreadyExists
	case code == "RESOURCE_NOT_FOUND" && kind == "delete":
		return provider.ErrNotFound
	case code == "RESOURCE_NOT_READY", strings.HasPrefix(code, "RESOURCE_IN_USE"), code == "INTERNAL_ERROR":
		return provider.ErrTransient
	case strings.HasSuffix(code, "NOT_FOUND"), strings.HasPrefix(code, "INVALID"), strings.HasPrefix(code, "PERMISSION"),
		code == "FORBIDDEN", code == "ACCESS_DENIED", code == "UNSUPPORTED_OPERATION", code == "CONDITION_NOT_MET":
		return provider.ErrPermanent
	}
	return statusClass(status)
}

// rank orders classes by how much they decide, for operations with several
// errors.
func rank(class error) int {
	switch {
	case errors.Is(class, provider.ErrPermanent):
		return 3
	case errors.Is(class, provider.ErrQuotaExceeded):
		return 2
	case errors.Is(class, provider.ErrStockout):
		return 1
	}
	return 0
}

// operationText is code, message, and what the details add for people.
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
