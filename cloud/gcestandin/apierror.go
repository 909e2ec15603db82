package gcestandin

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is a failure in the form that classic Google APIs use.
type apiError struct {
	Status  int
	Reason  string
	Message string
}

func (e *apiError) body() []byte {
	type item struct {
		Message string `json:"message"`
		Domain  string `json:"domain"`
		Reason  string `json:"reason"`
	}
	type inner struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []item `json:"errors"`
	}
	b, err := json.Marshal(map[string]inner{"error": {
		Code: e.Status, Message: e.Message,
		Errors: []item{{Message: e.Message, Domain: "global", Reason: e.Reason}},
	}})
	if err != nil {
		panic(fmt.Sprintf("an API error is not JSON: %v", err)) // strings and numbers only
	}
	return b
}

func notFound(resource string) *apiError {
	return &apiError{Status: http.StatusNotFound, Reason: "notFound", Message: fmt.Sprintf("The resource '%s' was not found", resource)}
}

func badRequest(reason, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// invalid is the real API's sentence, which repeats the value it refuses.
func invalid(field, value, why string) *apiError {
	return badRequest("invalid", "Invalid value for field '%s': '%s'. %s", field, value, why)
}
