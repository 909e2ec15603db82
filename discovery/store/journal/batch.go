package journal

import (
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// entryID is a place in the file.
type entryID struct{ bucket, key string }

// batch is changes that become durable together. Of several changes of one
// entry the last counts.
type batch struct {
	line   timeline
	values map[entryID]any // nil: the entry is deleted
	done   chan struct{}   // closed when err is set
	err    error
}

func newBatch(line timeline) *batch {
	return &batch{line: line, values: map[entryID]any{}, done: make(chan struct{})}
}

func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
}

// PutLease and the other methods make it a ledger.Journal.
func (b *batch) PutLease(r ledger.Record) {
	b.values[entryID{bucketLeases, leaseKey(r.FencingToken)}] = storeLease(r, b.line)
}

// DeleteLease is for ledger.Journal.
func (b *batch) DeleteLease(r ledger.Record) {
	b.values[entryID{bucketLeases, leaseKey(r.FencingToken)}] = nil
}

// PutCooldown is for ledger.Journal.
func (b *batch) PutCooldown(c ledger.Cooldown) {
	b.values[entryID{bucketCooldowns, key(c.ProxyUID, c.Target)}] = storedCooldown{c.ProxyUID, c.Target, b.line.nanos(c.Until)}
}

// DeleteCooldown is for ledger.Journal.
func (b *batch) DeleteCooldown(c ledger.Cooldown) {
	b.values[entryID{bucketCooldowns, key(c.ProxyUID, c.Target)}] = nil
}

// PutSession is for ledger.Journal.
func (b *batch) PutSession(s ledger.Session) {
	b.values[entryID{bucketSessions, key(s.Holder, s.Name)}] = storedSession{[]byte(s.Holder), []byte(s.Name), s.Instance.ProxyUID, s.Instance.ID, b.line.nanos(s.Until)}
}

// DeleteSession is for ledger.Journal.
func (b *batch) DeleteSession(s ledger.Session) {
	b.values[entryID{bucketSessions, key(s.Holder, s.Name)}] = nil
}

// putAll has the batch write a whole state.
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

// journalFunc is a ledger.Journal that asks anew for each change where it goes.
type journalFunc func() ledger.Journal

func (f journalFunc) PutLease(r ledger.Record)         { f().PutLease(r) }
func (f journalFunc) DeleteLease(r ledger.Record)      { f().DeleteLease(r) }
func (f journalFunc) PutCooldown(c ledger.Cooldown)    { f().PutCooldown(c) }
func (f journalFunc) DeleteCooldown(c ledger.Cooldown) { f().DeleteCooldown(c) }
func (f journalFunc) PutSession(s ledger.Session)      { f().PutSession(s) }
func (f journalFunc) DeleteSession(s ledger.Session)   { f().DeleteSession(s) }
