package fleet

import (
	"cmp"
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// endpoints are the two addresses of an External Proxy: an edit moves it from one to the
// other. Faults hit both.
type endpoints struct{ both [2]*external.Proxy }

func openEndpoints(ip string, sites external.Sites) (*endpoints, error) {
	var e endpoints
	for i := range e.both {
		p, err := external.Open(ip, sites)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.both[i] = p
	}
	return &e, nil
}

func (e *endpoints) addrs() [2]string { return [2]string{e.both[0].Addr(), e.both[1].Addr()} }

func (e *endpoints) close() error {
	var errs []error
	for _, p := range e.both {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// Switch changes the mode of an External proxy and records its state: dead after it is
// certainly dead, alive before it may be alive.
func (f *Fleet) Switch(name string, mode external.Mode) error {
	e := f.externals[name]
	state := map[external.Mode]history.State{
		external.Serve: history.Alive, external.Refuse: history.Dead, external.Hang: history.Hanging,
	}[mode]
	record := func(state history.State) {
		for _, addr := range e.addrs() {
			f.RecordState(0, name, addr, state)
		}
	}
	if state == history.Alive {
		record(state)
	}
	err := errors.Join(e.both[0].Set(mode), e.both[1].Set(mode))
	if state != history.Alive {
		record(cmp.Or(state, history.Lying))
	}
	return err
}

// RecordState records the state of the proxy at an address from a time on, 0 means now.
func (f *Fleet) RecordState(at time.Duration, name, addr string, state history.State) {
	t := history.Truth{Stamp: history.Stamp{At: at}, Proxy: f.FullName(name), Endpoint: addr, State: state}
	if p := f.Known(name); p != nil {
		t.UID = string(p.UID)
	}
	f.cfg.Recorder.Add(history.Record{Truth: &t})
}
