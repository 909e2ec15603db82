package journal

import (
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// rowKey identifies a value in the file.
type rowKey struct{ bucket, key string }

// batch is the changes of one commit. It is a ledger.Journal; the last change of a row
// counts.
type batch struct {
	line   timeline
	values map[rowKey]any // nil deletes the row
	done   chan struct{}  // closed when err is set
	err    error
}

func newBatch(line timeline) *batch {
	return &batch{line: line, values: map[rowKey]any{}, done: make(chan struct{})}
}

func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
}

// PutLease and the other methods implement ledger.Journal.
func (b *batch) PutLease(r ledger.Record) {
	b.values[rowKey{bucketLeases, leaseKey(r.FencingToken)}] = storeLease(r, b.line)
}

// DeleteLease implements ledger.Journal.
func (b *batch) DeleteLease(r ledger.Record) {
	b.values[rowKey{bucketLeases, leaseKey(r.FencingToken)}] = nil
}

// PutCooldown implements ledger.Journal.
func (b *batch) PutCooldown(c ledger.Cooldown) {
	b.values[rowKey{bucketCooldowns, key(c.ProxyUID, c.Target)}] = storedCooldown{c.ProxyUID, c.Target, b.line.nanos(c.Until)}
}

// DeleteCooldown implements ledger.Journal.
func (b *batch) DeleteCooldown(c ledger.Cooldown) {
	b.values[rowKey{bucketCooldowns, key(c.ProxyUID, c.Target)}] = nil
}

// PutSession implements ledger.Journal.
func (b *batch) PutSession(s ledger.Session) {
	b.values[rowKey{bucketSessions, key(s.Holder, s.Name)}] = storedSession{[]byte(s.Holder), []byte(s.Name), s.Instance.ProxyUID, s.Instance.ID, b.line.nanos(s.Until)}
}

// DeleteSession implements ledger.Journal.
func (b *batch) DeleteSession(s ledger.Session) {
	b.values[rowKey{bucketSessions, key(s.Holder, s.Name)}] = nil
}

// putAll adds a whole state.
func (b *batch) putAll(s ledger.State) {
	for _, r := range s.Leases {
		b.PutLease(r)
	}
	for _, c := range s.Cooldowns {
		b.PutCooldown(c)
	}
	for _, x := range s.Sessions {
		b.PutSession(x)
	}
}

// openBatch is a ledger.Journal that writes to the batch that is open now.
type openBatch struct{ *batch }
