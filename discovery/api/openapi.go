package api

import (
	_ "embed" // the document below
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"
)

// openAPI is the description of the API, in the form that people edit. Tests
// hold it to the routes and to every answer that they get.
//
//go:embed openapi.yaml
var openAPI []byte

const openAPIPath = "/openapi.json"

// openAPIDocument is the description in the form that is served.
func openAPIDocument() (json.RawMessage, error) {
	doc, err := yaml.YAMLToJSONStrict(openAPI)
	if err != nil {
		return nil, fmt.Errorf("description of the API: %w", err)
	}
	return doc, nil
}

// describe answers with the description of the API.
func (s *Server) describe(*http.Request) (response, error) {
	return response{status: http.StatusOK, header: http.Header{"Cache-Control": {"public, max-age=300"}}, body: s.document}, nil
}
