package walk

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// callTimeout bounds a call of the discovery API or of the cloud's.
const callTimeout = 10 * time.Second

// discoveryAPI is the discovery API. Leases go through the client package; the list, which it does not have, is fetched here.
type discoveryAPI struct {
	*client.Client
	url, token string
}

func newDiscoveryAPI(s Stack) (*discoveryAPI, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.TargetCA, MinVersion: tls.VersionTLS12}}
	c, err := client.New(client.Config{URL: s.DiscoveryURL, Token: s.Token, Transport: transport})
	return &discoveryAPI{Client: c, url: s.DiscoveryURL, token: s.Token}, err
}

// listedProxy is an element of GET /v1/proxies.
type listedProxy struct {
	client.Proxy
	ActiveLeases       int    `json:"activeLeases"`
	Leasable           bool   `json:"leasable"`
	NotLeasableMessage string `json:"notLeasableMessage"`
}

func (d *discoveryAPI) list(ctx context.Context) ([]listedProxy, error) {
	var body struct {
		Proxies []listedProxy `json:"proxies"`
	}
	err := call(ctx, http.MethodGet, d.url+"/v1/proxies", d.token, http.StatusOK, &body)
	return body.Proxies, err
}

func (d *discoveryAPI) find(ctx context.Context, name string) (listedProxy, error) {
	proxies, err := d.list(ctx)
	if err != nil {
		return listedProxy{}, err
	}
	i := slices.IndexFunc(proxies, func(p listedProxy) bool { return p.Name == name })
	if i < 0 {
		return listedProxy{}, fmt.Errorf("discovery does not list %s", name)
	}
	return proxies[i], nil
}

// want requests a lease of a proxy with these attributes, without a wait.
func want(selector map[string]string, target string) client.Want {
	return client.Want{Selector: selector, Target: target, TTL: leaseTTL, Patience: -1}
}

// granted requests a lease that discovery must grant.
func (d *discoveryAPI) granted(ctx context.Context, w client.Want) (*client.Lease, error) {
	l, err := d.Acquire(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("lease for %v: %w", w.Selector, err)
	}
	return l, nil
}

// refused requests a lease that discovery must refuse with a 409.
func (d *discoveryAPI) refused(ctx context.Context, w client.Want) (*client.APIError, error) {
	l, err := d.Acquire(ctx, w)
	var refusal *client.APIError
	switch {
	case err == nil:
		return nil, errors.Join(
			fmt.Errorf("lease for %v and target %q granted on %s, want a refusal", w.Selector, w.Target, l.Proxy.Name), l.Release(ctx))
	case errors.As(err, &refusal) && refusal.Status == http.StatusConflict:
		return refusal, nil
	}
	return nil, err
}

// releaseAgain repeats the release of a lease, which must succeed as the first one did.
func (d *discoveryAPI) releaseAgain(ctx context.Context, leaseID string) error {
	return call(ctx, http.MethodDelete, d.url+"/v1/leases/"+leaseID, d.token, http.StatusNoContent, nil)
}

// call makes an HTTP request, requires that status, and decodes the body into into unless that is nil.
func call(ctx context.Context, method, url, token string, want int, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("%s %s returned %s, want %d", method, url, resp.Status, want)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("decode the response of %s %s: %w", method, url, err)
	}
	return nil
}
