package webhooks

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
)

// FuzzRequests sends anything at all to the hooks' endpoint: nobody gets past the
// token, and only a hook answers JSON.
func FuzzRequests(f *testing.F) {
	const as = "Authorization: Bearer " + newToken + "\r\n"
	with := func(line, headers, body string) []byte {
		return []byte(line + " HTTP/1.1\r\nHost: w\r\n" + headers + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	f.Add(with("POST /hooks/sync", as, `{"parent":{"kind":"Proxy","metadata":{"namespace":"n","name":"a","uid":"b"},"spec":{"mode":"External","endpoint":{"host":"h","port":1}}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}}}`))
	f.Add(with("POST /hooks/finalize", "", `{}`))
	f.Add(with("GET /hooks/customize", as, ""))
	f.Add(with("POST /hooks//sync", as, `null`))
	f.Add(with("POST http://x/hooks/%73ync?x", as, `[`))
	f.Add([]byte("POST /hooks/sync HTTP/1.0\r\n" + as + "Content-Type: application/json; charset=\"\r\n\r\n"))
	given := []bearer.Token{bearer.New(newToken)}
	tokens, err := config.NewBearerTokens(tokenFile(f, newToken), quiet())
	require.NoError(f, err)
	h := New(testOptions()).Handler(tokens)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // package http answers these
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.NotContains(t, rec.Body.String(), "a defect of webhooks", "it panicked")
		require.NotContains(t, rec.Body.String(), newToken)
		require.NotEmpty(t, rec.Body.String())
		isJSON := rec.Header().Get("Content-Type") == "application/json"
		require.Equal(t, rec.Code == http.StatusOK, isJSON, rec.Code)
		if isJSON || rec.Code == http.StatusBadRequest || rec.Code == http.StatusInternalServerError {
			require.True(t, bearer.Accepts(r.Header.Get("Authorization"), given...), "a stranger reached the hook")
			require.Equal(t, http.MethodPost, r.Method)
		}
	})
}

// FuzzParseLimit: a limit is at least one and at most the fleet, whatever the
// fleet's size.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"20%", "3", "0", "101%", "-1", "%", "1e3", "9223372036854775807", "+5%", "5%%"} {
		f.Add(seed, 100)
	}
	f.Fuzz(func(t *testing.T, text string, fleet int) {
		l, err := ParseLimit(text)
		if err != nil {
			require.ErrorContains(t, err, strconv.Quote(text))
			return
		}
		fleet = max(0, fleet) % 1_000_000 // more than any API server holds
		require.Positive(t, limitOf(l, fleet))
		if strings.HasSuffix(text, "%") {
			require.LessOrEqual(t, limitOf(l, fleet), max(1, fleet))
		}
	})
}
