// Package gcp makes instances on Google Compute Engine, with Google's REST client
// and five calls only: instances insert, get, delete and aggregatedList, and
// zoneOperations get.
//
// Traps of that client and its server that their documentation does not mention:
//
//   - The client retries get for ten minutes unless its call options are emptied;
//     retries and their backoff belong to the reconciler.
//   - aggregatedList ignores its context; only http.Client.Timeout ends it.
//   - Unreachable zones are warnings on any page, which the iterator hides.
//   - Operation.Wait returns nil for an operation that carries an error without an
//     HTTP status; inspect the error itself.
//   - Error messages echo the refused value, user data included.
//   - 403 means quota, rate limit or permission; only the reason distinguishes them.
package gcp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Type is this provider's type in the provider config.
const Type = providers.TypeGCP

// Config is the gcp block of a provider.
type Config = providers.GCP

// Options are shared by all gcp providers of a process.
type Options struct {
	Endpoint  string            // Endpoint other than Google's; it receives no credentials
	Timeout   time.Duration     // of a single HTTP request, default 30 s. Nothing else ends an aggregatedList
	Transport http.RoundTripper // of requests to Endpoint, default a clone of http.DefaultTransport
}

// Constructor makes gcp providers, which use application-default credentials unless
// Options.Endpoint is set.
func Constructor(o Options) provider.Constructor {
	return func(ctx context.Context, e providers.Entry, installation string) (provider.Cloud, error) {
		var cfg Config
		if err := e.Decode(&cfg); err != nil {
			return nil, err
		}
		return New(ctx, cfg, installation, o)
	}
}

// Cloud is one project.
type Cloud struct {
	cfg          Config
	installation string
	instances    *compute.InstancesClient
	operations   *compute.ZoneOperationsClient
	http         *http.Client
}

// New returns the project of cfg. The error lists every wrong field, or is that of
// missing credentials.
func New(ctx context.Context, cfg Config, installation string, o Options) (*Cloud, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	client, err := httpClient(ctx, o)
	if err != nil {
		return nil, err
	}
	// The client's debug log, which an environment variable enables, would contain
	// request bodies and so user data.
	use := []option.ClientOption{option.WithHTTPClient(client), option.WithLogger(slog.New(slog.DiscardHandler))}
	if o.Endpoint != "" {
		use = append(use, option.WithEndpoint(o.Endpoint))
	}
	c := &Cloud{cfg: cfg, installation: installation, http: client}
	if c.instances, err = compute.NewInstancesRESTClient(ctx, use...); err != nil {
		return nil, fmt.Errorf("gcp: client for instances: %w", err)
	}
	if c.operations, err = compute.NewZoneOperationsRESTClient(ctx, use...); err != nil {
		return nil, fmt.Errorf("gcp: client for operations: %w", err)
	}
	*c.instances.CallOptions = compute.InstancesCallOptions{}
	*c.operations.CallOptions = compute.ZoneOperationsCallOptions{}
	return c, nil
}

func httpClient(ctx context.Context, o Options) (*http.Client, error) {
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 32
	client := &http.Client{Transport: base, Timeout: o.Timeout}
	if o.Endpoint != "" {
		if o.Transport != nil {
			client.Transport = o.Transport
		}
		return client, nil
	}
	// The token source uses a client with the same timeout.
	tokens, err := google.DefaultTokenSource(context.WithValue(ctx, oauth2.HTTPClient, client), "https://www.googleapis.com/auth/compute")
	if err != nil {
		return nil, fmt.Errorf("gcp: no application-default credentials, use Workload Identity in a cluster or `gcloud auth application-default login` on a laptop: %w", err)
	}
	return &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: base}, Timeout: o.Timeout}, nil
}

// Close closes idle connections. Close of Google's clients would remove the HTTP
// client of a list that outlives its context, which then panics.
func (c *Cloud) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Account is the project.
func (c *Cloud) Account() string { return Type + "/" + c.cfg.Project }

// MaxInstances is gcp.maxInstances.
func (c *Cloud) MaxInstances() int { return c.cfg.MaxInstances }
