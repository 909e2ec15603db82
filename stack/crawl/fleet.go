package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

// poolName is the attribute of the proxies of the crawl.
const poolName = "crawl"

// readyTimeout bounds the time until all proxies are leasable.
const readyTimeout = 90 * time.Second

// fleet is the External proxies, which run in this process.
type fleet struct {
	proxies map[string]*external.Proxy
	names   []string
	stack   walk.Stack
}

// openFleet opens the proxies and applies a Proxy for each.
func openFleet(ctx context.Context, cfg Config) (*fleet, error) {
	site, err := url.Parse(cfg.Stack.TargetURL)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	f := &fleet{proxies: map[string]*external.Proxy{}, stack: cfg.Stack}
	var objects []v1alpha1.Proxy
	for i := range cfg.Proxies {
		p, err := external.Open(cfg.IP, external.Sites{Real: site.Host, Impostor: site.Host})
		if err != nil {
			f.close()
			return nil, err
		}
		name := fmt.Sprintf("crawl-%03d", i)
		f.proxies[name], f.names = p, append(f.names, name)
		objects = append(objects, object(cfg, name, netip.MustParseAddrPort(p.Addr())))
	}
	if err := f.apply(ctx, objects); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func object(cfg Config, name string, addr netip.AddrPort) v1alpha1.Proxy {
	return v1alpha1.Proxy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cfg.Stack.Namespace},
		Spec: v1alpha1.ProxySpec{
			Mode:      v1alpha1.ModeExternal,
			Endpoint:  &v1alpha1.Endpoint{Host: addr.Addr().String(), Port: int32(addr.Port())},
			MaxLeases: ptr.To(int32(max(2, 2*cfg.Workers/cfg.Proxies))),
			Attributes: map[string]v1alpha1.AttributeValue{
				"pool": poolName,
			},
			HealthCheck: &v1alpha1.HealthCheck{
				ProbeURL: cfg.Stack.TargetURL + "/generate_204", FailureThreshold: 2,
				Interval: metav1.Duration{Duration: 2 * time.Second}, Timeout: metav1.Duration{Duration: 2 * time.Second},
				ExpectedStatusCodes: []int32{http.StatusNoContent},
			},
		},
	}
}

// apply applies the objects with kubectl, as users do.
func (f *fleet) apply(ctx context.Context, objects []v1alpha1.Proxy) error {
	var docs strings.Builder
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode a Proxy: %w", err)
		}
		docs.Write(text)
		docs.WriteString("\n---\n")
	}
	cmd := exec.CommandContext(ctx, f.stack.Kubectl, "--kubeconfig", f.stack.Kubeconfig, "apply", "--server-side", "-f", "-")
	cmd.Stdin = strings.NewReader(docs.String())
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply the Proxies: %w: %s", err, text)
	}
	return nil
}

// awaitReady waits until discovery offers every proxy.
func (f *fleet) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		var list struct {
			Count int `json:"count"`
		}
		err := getJSON(ctx, f.stack, "/v1/proxies?leasable=true&attr.pool="+poolName, &list)
		if err == nil && list.Count == len(f.names) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d of %d proxies are leasable after %s", list.Count, len(f.names), readyTimeout), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// outage is a time in which a proxy failed.
type outage struct {
	proxy    string
	from, to time.Time
}

// faultEvery is the time between two faults. A fault lasts four times that, so that four
// proxies fail at a time.
func faultEvery(cfg Config) time.Duration { return cfg.Duration / time.Duration(2*cfg.Proxies) }

// fail lets one proxy after the other fail until ctx ends.
func (f *fleet) fail(ctx context.Context, cfg Config) []outage {
	every := faultEvery(cfg)
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	order := slices.Clone(f.names)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var outages []outage
	for i := 0; ; i++ {
		if i >= 4 { // the oldest recovers
			mended := &outages[i-4]
			_ = f.proxies[mended.proxy].Set(external.Serve)
			mended.to = time.Now()
		}
		name := order[i%len(order)]
		outages = append(outages, outage{proxy: name, from: time.Now()})
		_ = f.proxies[name].Set(modes[i%len(modes)])
		select {
		case <-ctx.Done():
			for j := range outages {
				if outages[j].to.IsZero() {
					outages[j].to = time.Now()
				}
			}
			return outages
		case <-time.After(every):
		}
	}
}

// mend lets all proxies serve.
func (f *fleet) mend() {
	for _, p := range f.proxies {
		_ = p.Set(external.Serve) // the port was ours before
	}
}

func (f *fleet) close() {
	for _, p := range f.proxies {
		_ = p.Close()
	}
}

// leasesLeft returns how many leases are left when none is given back any more, at most
// after wait.
func leasesLeft(ctx context.Context, s walk.Stack, wait time.Duration) (int, error) {
	for end := time.Now().Add(wait); ; {
		var list struct {
			Leases []struct{} `json:"leases"`
		}
		if err := getJSON(ctx, s, "/v1/leases", &list); err != nil {
			return 0, err
		}
		if len(list.Leases) == 0 || time.Now().After(end) {
			return len(list.Leases), nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func getJSON(ctx context.Context, s walk.Stack, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.DiscoveryURL+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("discovery answered %d to GET %s", resp.StatusCode, path)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
