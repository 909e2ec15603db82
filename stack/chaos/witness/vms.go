package witness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Labels of our VMs, a contract with running VMs: the adapter's constants are not used,
// since a bug there would hide here.
const (
	vmLabelUID      = "crawl-proxy-uid"
	vmLabelSpecHash = "crawl-spec-hash"
)

// page is the largest response.
const page = 32 << 20

// reader opens a connection for each request: every restart would break a kept one.
type reader struct{ http.Client }

func newReader(timeout time.Duration) *reader {
	return &reader{http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (r *reader) read(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, page))
}

// vmTable observes the VMs of the Compute Engine stand-in.
type vmTable struct {
	cfg    *Config
	reader *reader
	gap    gap
	last   []history.VM  // nil before the first response
	asked  time.Duration // start of the last poll that returned last
}

func newVMTable(cfg *Config) *vmTable {
	return &vmTable{cfg: cfg, reader: newReader(5 * time.Second), gap: gap{observer: "vms", recorder: cfg.Recorder}}
}

func (t *vmTable) look(ctx context.Context) {
	asked := t.cfg.Recorder.Now()
	body, err := t.reader.read(ctx, t.cfg.VMsURL)
	var vms []history.VM
	if err == nil {
		vms, err = parseVMs(body)
	}
	if ctx.Err() != nil {
		t.gap.ok()
		return
	}
	if err != nil {
		t.gap.fail(err)
		return
	}
	t.gap.ok()
	confirmed := t.asked
	t.asked = asked
	if reflect.DeepEqual(vms, t.last) {
		return
	}
	t.last = vms
	t.cfg.Recorder.Add(history.Record{VMs: &history.VMs{Asked: asked, Confirmed: confirmed, VMs: vms}})
}

func parseVMs(body []byte) ([]history.VM, error) {
	var table []struct {
		Zone, Name, ID, Status, IP string
		Labels                     map[string]string
	}
	if err := json.Unmarshal(body, &table); err != nil {
		return nil, fmt.Errorf("the VM table: %w", err)
	}
	vms := make([]history.VM, 0, len(table))
	for _, v := range table {
		vms = append(vms, history.VM{
			ID: v.ID, Name: v.Name, Zone: v.Zone, State: v.Status, IP: v.IP,
			UID: v.Labels[vmLabelUID], SpecHash: v.Labels[vmLabelSpecHash],
		})
	}
	return vms, nil
}
