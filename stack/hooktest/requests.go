package hooktest

import (
	"regexp"
	"slices"
	"strconv"
)

// sample is one line of the API server's metrics.
type sample struct {
	labels map[string]string
	value  float64
}

var (
	samplePattern = regexp.MustCompile(`(?m)^(\w+)\{(.*)\} (\S+)$`)
	labelPattern  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// metric reads all samples of one metric of the API server.
func (l *Lab) metric(name string) []sample {
	l.t.Helper()
	body, err := l.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(l.t.Context())
	if err != nil {
		l.t.Fatalf("read the API server's metrics: %v", err)
	}
	var out []sample
	for _, m := range samplePattern.FindAllStringSubmatch(string(body), -1) {
		if m[1] != name {
			continue
		}
		s := sample{labels: map[string]string{}}
		for _, pair := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			s.labels[pair[1]] = pair[2]
		}
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			l.t.Fatalf("metric %s: %v", name, err)
		}
		out = append(out, s)
	}
	return out
}

// Writes counts the write requests to the API server, by verb and resource, except its own: Leases
// and its configuration. A request that changes nothing counts too.
func (l *Lab) Writes() map[string]int {
	l.t.Helper()
	out := map[string]int{}
	for _, s := range l.metric("apiserver_request_total") {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, s.labels["verb"]) && s.labels["resource"] != "leases" {
			out[s.labels["verb"]+" "+s.labels["resource"]+"/"+s.labels["subresource"]] += int(s.value)
		}
	}
	return out
}

// SecretWatches counts the open watches of the Secrets of all namespaces, including one of the API
// server itself.
func (l *Lab) SecretWatches() int {
	l.t.Helper()
	n := 0
	for _, s := range l.metric("apiserver_longrunning_requests") {
		if s.labels["verb"] == "WATCH" && s.labels["resource"] == "secrets" && s.labels["scope"] == "cluster" {
			n += int(s.value)
		}
	}
	return n
}
