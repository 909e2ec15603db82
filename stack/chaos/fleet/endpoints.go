package fleet

import (
	"errors"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// endpoints are the two addresses of an External Proxy: an edit moves it from one
// to the other. Troubles hit both.
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

// Switch makes a proxy of others do that, and writes down what is true of it from
// then on: it is dead when it surely is, and alive as soon as it may be.
func (f *Fleet) Switch(name string, mode external.Mode) error {
	e := f.externals[name]
	state := map[external.Mode]history.State{
		external.Serve: history.Alive, external.Refuse: history.Dead, external.Hang: history.Hanging,
	}[mode]
	if state == "" {
		state = history.Lying
	}
	if state == history.Alive {
		f.tell(name, e.addrs(), state)
	}
	var errs []error
	for _, p := range e.both {
		errs = append(errs, p.Set(mode))
	}
	if state != history.Alive {
		f.tell(name, e.addrs(), state)
	}
	return errors.Join(errs...)
}

func (f *Fleet) tell(name string, addrs [2]string, state history.State) {
	for _, addr := range addrs {
		f.RecordState(name, addr, state)
	}
}

// RecordState writes down what is true of the proxy at that address, from now on.
func (f *Fleet) RecordState(name, addr string, state history.State) {
	f.RecordStateAt(f.cfg.Recorder.Now(), name, addr, state)
}

// RecordStateAt is RecordState from another moment on.
func (f *Fleet) RecordStateAt(at time.Duration, name, addr string, state history.State) {
	t := history.Truth{Stamp: history.Stamp{At: at}, Proxy: f.FullName(name), Endpoint: addr, State: state}
	if p := f.Known(name); p != nil {
		t.UID = string(p.UID)
	}
	f.cfg.Recorder.Add(history.Record{Truth: &t})
}
