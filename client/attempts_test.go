package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Attempts holds a refusal back until another proxy shows whose doing it was.
func TestAttemptsReportsBansByWhatOtherProxiesGot(t *testing.T) {
	status := func(code int) Outcome { return Judge(&http.Response{StatusCode: code}, nil) }
	captcha := Outcome{Report{Result: Captcha}, true, true}
	broken := ofProxy(ConnectError)
	for name, test := range map[string]struct {
		fleet    []string
		outcomes []Outcome // of the attempts
		used     []string
		reports  []string
	}{
		"the first gets the page":           {[]string{"a", "b"}, []Outcome{status(200)}, []string{"a"}, []string{"a ok"}},
		"another proxy gets the page":       {[]string{"a", "b", "c", "d"}, []Outcome{status(403), captcha, status(200)}, []string{"a", "b", "c"}, []string{"c ok", "a banned", "b captcha"}},
		"the URL refuses every proxy":       {[]string{"a", "b", "c", "d"}, []Outcome{status(403), status(403), status(451)}, []string{"a", "b", "c"}, nil},
		"only one proxy":                    {[]string{"a"}, []Outcome{status(403)}, []string{"a"}, []string{"a banned"}},
		"only two proxies, both refused":    {[]string{"a", "b"}, []Outcome{status(403), status(403)}, []string{"a", "b"}, nil},
		"a failed proxy is no second":       {[]string{"a", "b"}, []Outcome{status(403), broken}, []string{"a", "b"}, []string{"b connect_error", "a banned"}},
		"rate limits are reported at once":  {[]string{"a", "b", "c"}, []Outcome{status(429), broken, status(200)}, []string{"a", "b", "c"}, []string{"a rate_limited", "b connect_error", "c ok"}},
		"404 is no reason to try again":     {[]string{"a", "b"}, []Outcome{status(404)}, []string{"a"}, nil},
		"a closed tunnel: another, no word": {[]string{"a", "b"}, []Outcome{{ChangeProxy: true, Retry: true}, status(200)}, []string{"a", "b"}, []string{"b ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{fleet: test.fleet}
			var used []string
			last, err := a.client(t).Attempts(t.Context(), Want{Patience: -1}, 3, func(_ context.Context, l *Lease) Outcome {
				used = append(used, l.Proxy.Name)
				return test.outcomes[len(used)-1]
			})
			require.NoError(t, err)
			assert.Equal(t, test.used, used)
			assert.Equal(t, test.outcomes[len(test.outcomes)-1], last)
			var want []string
			for _, r := range test.reports {
				var proxy, result string
				_, _ = fmt.Sscan(r, &proxy, &result)
				want = append(want, fmt.Sprintf(`%s {"result":%q}`, proxy, result))
			}
			assert.Equal(t, want, a.reports)
			for _, proxy := range used {
				assert.Equal(t, 1, a.count("DELETE /v1/leases/"+proxy), "the lease of %s is released", proxy)
			}
		})
	}
}

func TestAttemptsFailsWithoutAnyProxy(t *testing.T) {
	a := &api{fleet: []string{"a"}}
	_, err := a.client(t).Attempts(t.Context(), Want{Exclude: []string{"crawl/a"}}, 3, func(context.Context, *Lease) Outcome {
		t.Error("called without a lease")
		return Outcome{}
	})
	assert.ErrorIs(t, err, ErrNoProxy)
}

func TestAttemptsReleasesAfterAPanic(t *testing.T) {
	a := &api{fleet: []string{"a", "b"}}
	assert.Panics(t, func() {
		calls := 0
		_, _ = a.client(t).Attempts(t.Context(), Want{}, 3, func(context.Context, *Lease) Outcome {
			if calls++; calls == 2 {
				panic(errors.New("a bug"))
			}
			return Outcome{Report{Result: Banned}, true, true}
		})
	})
	assert.Equal(t, 1, a.count("DELETE /v1/leases/a"))
	assert.Equal(t, 1, a.count("DELETE /v1/leases/b"))
}
