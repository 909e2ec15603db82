package history

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(t *testing.T) (*Recorder, *clocktesting.FakePassiveClock, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	c := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0).UTC())
	r, err := Start(path, c, Begin{Seed: 7, Notes: map[string]string{"disk": "RLIMIT_FSIZE"}})
	require.NoError(t, err)
	return r, c, path
}

func TestRecordAndRead(t *testing.T) {
	r, c, path := record(t)
	c.SetTime(c.Now().Add(time.Second))
	r.Add(Record{Stage: &Stage{Name: StageFaults}})
	end := r.Fault(Fault{Family: Kill, Subject: "metacontroller"})
	open := r.Fault(Fault{Family: Freeze, Subject: "prober", From: 900 * time.Millisecond})
	c.SetTime(c.Now().Add(time.Second))
	end()
	assert.Equal(t, 5*time.Second, r.Offset(c.Now().Add(3*time.Second)))
	r.Add(Record{Call: &Call{Kind: Acquire, Asked: 1, Answered: 2, Status: 201, LeaseID: "l", FencingToken: 1<<63 + 1}})
	r.Add(Record{VMs: &VMs{VMs: []VM{{ID: "1", State: "RUNNING"}}}})
	_ = open
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "again")
	r.Add(Record{Gap: &Gap{Observer: "late"}})

	h, err := Open(path)
	require.NoError(t, err)
	assert.Equal(t, uint64(7), h.Begin.Seed)
	assert.True(t, h.Begin.Wall.Equal(time.Unix(1_800_000_000, 0)))
	assert.Equal(t, []Fault{
		{Stamp: Stamp{At: time.Second, Line: 4}, ID: 2, Family: Freeze, Subject: "prober", From: 900 * time.Millisecond, To: 2 * time.Second},
		{Stamp: Stamp{At: 2 * time.Second, Line: 5}, ID: 1, Family: Kill, Subject: "metacontroller", From: time.Second, To: 2 * time.Second},
	}, h.Faults)
	assert.Equal(t, []Call{{Stamp: Stamp{At: 2 * time.Second, Line: 6}, Kind: Acquire, Asked: 1, Answered: 2, Status: 201, LeaseID: "l", FencingToken: 1<<63 + 1}}, h.Calls)
	assert.Equal(t, 2*time.Second, h.End)
	assert.False(t, h.Torn)
	assert.Empty(t, h.Gaps)
	from, to, ok := h.StageAt(StageFaults)
	assert.Equal(t, []any{time.Second, 2 * time.Second, true}, []any{from, to, ok})
	_, _, ok = h.StageAt(StageRecovery)
	assert.False(t, ok)
}

// TestKilled: a killed campaign leaves all its records; a cut last line is reported and
// left out.
func TestKilled(t *testing.T) {
	r, _, path := record(t)
	r.Add(Record{Truth: &Truth{Proxy: "default/a", State: Dead}})
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	h, err := Read(strings.NewReader(string(written[:len(written)-3])))
	require.NoError(t, err)
	assert.True(t, h.Torn)
	assert.Empty(t, h.Truths)
	h, err = Read(strings.NewReader(string(written)))
	require.NoError(t, err)
	assert.Len(t, h.Truths, 1)
	require.NoError(t, r.Close())
}

func TestConcurrentRecording(t *testing.T) {
	r, _, path := record(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				r.Add(Record{Crawl: &Crawl{Detail: strings.Repeat("x", 300)}})
				r.Fault(Fault{Family: Compute})()
			}
		})
	}
	all.Wait()
	require.NoError(t, r.Close())
	h, err := Open(path)
	require.NoError(t, err)
	assert.Len(t, h.Crawls, 400)
	assert.Len(t, h.Faults, 400)
}

// TestLostRecords: a failed write is reported.
func TestLostRecords(t *testing.T) {
	r, _, _ := record(t)
	require.NoError(t, r.file.Close())
	r.Add(Record{Gap: &Gap{}})
	require.Error(t, r.Err())
	require.Error(t, r.Close())
	_, err := Start(filepath.Join(t.TempDir(), "no", "folder"), clocktesting.NewFakePassiveClock(time.Time{}), Begin{})
	require.Error(t, err)
}

func TestReadRejectsOtherFiles(t *testing.T) {
	begin := `{"begin":{"at":0,"wall":"2026-01-01T00:00:00Z","seed":1}}` + "\n"
	for name, text := range map[string]string{
		"nothing":        "",
		"no begin":       `{"stage":{"at":1,"name":"recovery"}}` + "\n",
		"no record":      begin + "{}\n",
		"unknown record": begin + `{"rumour":{}}` + "\n",
		"unknown field":  begin + `{"stage":{"at":1,"name":"recovery","why":"?"}}` + "\n",
		"no JSON":        begin + "hello\n",
	} {
		_, err := Read(strings.NewReader(text))
		assert.Error(t, err, name)
	}
}

func TestUncertain(t *testing.T) {
	for _, tt := range []struct {
		call Call
		want bool
	}{
		{Call{Status: 201}, false}, {Call{Status: 404}, false}, {Call{Failure: Refused}, false},
		{Call{Failure: Broken}, true}, {Call{Failure: Timeout}, true}, {Call{Status: 500}, true}, {Call{Status: 503}, true},
	} {
		assert.Equal(t, tt.want, tt.call.Uncertain(), "%+v", tt.call)
	}
}
