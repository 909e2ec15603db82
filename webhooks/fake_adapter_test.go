package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// fakeAdapter is a cloud adapter with at most one VM. A call notes what should
// be and answers what is, the same for the same call; only step changes
// anything.
type fakeAdapter struct {
	mu sync.Mutex
	// vm that exists, nil for none.
	vm *adapter.Instance
	// failure keeps a VM from being made.
	failure *adapter.Failure
	// err is what every call returns, until step heals it unless it is stubborn.
	err      error
	stubborn bool
	// lie takes the place of every answer.
	lie *adapter.Instance

	want  *adapter.PutRequest
	gone  bool
	made  int
	calls []fakeCall
}

// fakeCall is one call of an adapter.
type fakeCall struct {
	Method     string              `json:"method"`
	Provider   string              `json:"provider"`
	Name       string              `json:"name"`
	Put        *adapter.PutRequest `json:"put,omitempty"`
	UID        string              `json:"uid,omitempty"`
	ProviderID string              `json:"providerID,omitempty"`
}

func (f *fakeAdapter) Put(_ context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fakeCall{Method: "PUT", Provider: provider, Name: name, Put: &req})
	if err := req.Validate(name); err != nil {
		return adapter.Instance{}, err
	}
	switch {
	case f.err != nil:
		return adapter.Instance{}, f.err
	case f.gone:
		return adapter.Instance{}, adapter.ErrDeleted
	}
	f.want = &req
	return f.answer(), nil
}

func (f *fakeAdapter) Delete(_ context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fakeCall{Method: "DELETE", Provider: provider, Name: name, UID: uid, ProviderID: providerID})
	if f.err != nil {
		return adapter.Instance{}, f.err
	}
	f.gone = true
	return f.answer(), nil
}

func (f *fakeAdapter) answer() adapter.Instance {
	if f.lie != nil {
		return *f.lie
	}
	if f.vm == nil {
		out := adapter.Instance{State: adapter.StateAbsent, Action: adapter.ActionNone, Failure: f.failure}
		if f.failure == nil && !f.gone {
			out.Action = adapter.ActionInserting
		}
		return out
	}
	out := *f.vm
	if f.gone && out.State == adapter.StateRunning {
		out.State = adapter.StateStopping
	}
	return out
}

// step lets the adapter and the cloud do one thing, and reports whether they
// did.
func (f *fakeAdapter) step() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch vm := f.vm; {
	case f.err != nil && !f.stubborn:
		f.err = nil
	case f.err != nil || f.lie != nil:
		return false
	case vm == nil && (f.gone || f.want == nil || f.failure != nil):
		return false
	case vm == nil:
		f.made++
		created := proxytest.Noon()
		f.vm = &adapter.Instance{
			State: adapter.StateProvisioning, Action: adapter.ActionInserting, ProviderID: "zones/" + f.want.Placement.Zone + "/instances/" + f.calls[len(f.calls)-1].Name,
			InstanceID: fmt.Sprint(1000 + f.made), SpecHash: f.want.SpecHash, Port: f.want.Port, CreatedAt: &created,
		}
	case vm.State == adapter.StateStopping:
		f.vm = nil
	case f.gone || vm.State == adapter.StateStopped || f.want != nil && f.want.Replace != "" && f.want.Replace == vm.InstanceID:
		vm.State, vm.Action, vm.IP = adapter.StateStopping, adapter.ActionDeleting, ""
	case vm.State == adapter.StateProvisioning:
		vm.State, vm.Action, vm.IP = adapter.StateRunning, adapter.ActionNone, fmt.Sprintf("203.0.113.%d", 10+f.made)
	case vm.State == adapter.StateRunning && vm.IP == "":
		vm.IP = "203.0.113.9"
	default:
		return false
	}
	return true
}

// holds reports whether the end of the VM cannot be confirmed yet.
func (f *fakeAdapter) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.vm != nil || f.err != nil || f.lie != nil && f.lie.State != adapter.StateAbsent
}

// kills are the calls that would end an instance.
func (f *fakeAdapter) kills() (out []fakeCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.Method == "DELETE" || c.Put.Replace != "" {
			out = append(out, c)
		}
	}
	return out
}

func (f *fakeAdapter) puts() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.Method == "PUT" {
			n++
		}
	}
	return n
}

// strangers is an adapter whose config has none of the providers.
func strangers() *fakeAdapter {
	return &fakeAdapter{err: adapterErrors()["unknown_provider"], stubborn: true}
}

// adapterErrors are what a call may return, by the metric's name.
func adapterErrors() map[string]error {
	says := func(status int, code, message string) error {
		return &adapter.StatusError{Status: status, Body: adapter.ErrorBody{Error: code, Message: message}}
	}
	return map[string]error{
		"unavailable":      fmt.Errorf("%w: dial unix /run/cloud/s: connect: no such file or directory", adapter.ErrUnavailable),
		"not_ready":        says(503, adapter.CodeNotReady, "its instances are being listed for the first time"),
		"unknown_provider": says(404, adapter.CodeUnknownProvider, `provider "x": unknown provider`),
		"deleted":          says(409, adapter.CodeDeleted, "it has been deleted"),
		"invalid":          says(400, adapter.CodeInvalid, "port 0: want 1 to 65535"),
	}
}

// fixtureAdapter reads the adapter of a fixture, nil when it has none.
func fixtureAdapter(t testing.TB, request string) *fakeAdapter {
	t.Helper()
	b, err := os.ReadFile(strings.Replace(request, ".request.json", ".adapter.json", 1))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var in struct {
		Instance *adapter.Instance `json:"instance"`
		Failure  *adapter.Failure  `json:"failure"`
		Error    string            `json:"error"`
	}
	require.NoError(t, json.Unmarshal(b, &in))
	f := &fakeAdapter{vm: in.Instance, failure: in.Failure}
	if in.Error != "" {
		f.err = adapterErrors()[in.Error]
		require.Error(t, f.err)
	}
	return f
}

// hooksWith are hooks at noon that ask that adapter.
func hooksWith(a Adapter) *Hooks {
	o := testOptions()
	o.CloudInitSecrets, o.Adapter = true, a
	return New(o)
}
