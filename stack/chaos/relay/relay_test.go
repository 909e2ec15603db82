package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const answer = `{"status":{"phase":"Ready"}}`

// start has a relay to a hook that echoes path and body, and answers 429 to
// what asks for it.
func start(t *testing.T) *Relay {
	t.Helper()
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/json")
		if string(body) == "busy" {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, answer+req.URL.Path+string(body)+req.Header.Get("Authorization"))
	}))
	t.Cleanup(hook.Close)
	r, err := Start("127.0.0.1", strings.TrimPrefix(hook.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

func ask(r *Relay, body string) (*http.Response, string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Addr()+"/hooks/sync", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Authorization", "Bearer x")
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func TestPassesOn(t *testing.T) {
	r := start(t)
	resp, body, err := ask(r, "hello")
	require.NoError(t, err)
	assert.Equal(t, answer+"/hooks/sync"+"hello"+"Bearer x", body)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	resp, _, err = ask(r, "busy")
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "3", resp.Header.Get("Retry-After"))
}

func TestTroubles(t *testing.T) {
	r := start(t)
	r.Set(Mode{Cut: true})
	_, body, err := ask(r, "hello")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.True(t, strings.HasPrefix(answer, body) || strings.HasPrefix(body, answer[:5]))

	r.Set(Mode{Fail: true})
	resp, _, err := ask(r, "hello")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)

	r.Set(Mode{})
	_, body, err = ask(r, "hello")
	require.NoError(t, err)
	assert.Contains(t, body, answer)
}

func TestHeldAnswersGoWhenTheTroubleIsOver(t *testing.T) {
	r := start(t)
	r.Set(Mode{Delay: time.Hour})
	got := make(chan string)
	go func() {
		_, body, err := ask(r, "hello")
		assert.NoError(t, err)
		got <- body
	}()
	select {
	case <-got:
		t.Fatal("it was not held back")
	case <-time.After(50 * time.Millisecond):
	}
	r.Set(Mode{})
	assert.Contains(t, <-got, answer)
}

func TestAHookThatIsGone(t *testing.T) {
	r, err := Start("127.0.0.1", "127.0.0.1:1")
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	_, _, err = ask(r, "hello")
	assert.ErrorIs(t, err, io.EOF)
}
