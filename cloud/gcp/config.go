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

// Options are what all gcp providers of a process share.
type Options struct {
	// Endpoint other than Google's; no credentials are sent to it.
	Endpoint string
	// Timeout of a single HTTP request. It must not be 0, since nothing else
	// ends an aggregatedList. Default 30 s.
	Timeout time.Duration
}

// Constructor makes gcp providers, which sign in with application-default
// credentials unless Options.Endpoint is set.
func Constructor(o Options) provider.Constructor {
	return func(ctx context.Context, e provider.Entry, d provider.Deps) (provider.Cloud, error) {
		var cfg Config
		if err := e.Decode(&cfg); err != nil {
			return nil, err
		}
		return New(ctx, cfg, d.Installation, o)
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

// New returns the project of cfg. The error lists every field that is wrong, or
// says that no credentials were found.
func New(ctx context.Context, cfg Config, installation string, o Options) (*Cloud, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	client, err := httpClient(ctx, o)
	if err != nil {
		return nil, err
	}
	// The client's own debug log, which an environment variable switches on,
	// would show request bodies and so user data.
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
	if o.Endpoint != "" {
		return &http.Client{Transport: base, Timeout: o.Timeout}, nil
	}
	// Tokens are fetched with a client of the same time-out.
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: base, Timeout: o.Timeout})
	tokens, err := google.DefaultTokenSource(ctx, "https://www.googleapis.com/auth/compute")
	if err != nil {
		return nil, fmt.Errorf("gcp: no application-default credentials, use Workload Identity in a cluster or `gcloud auth application-default login` on a laptop: %w", err)
	}
	return &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: base}, Timeout: o.Timeout}, nil
}

// Close ends the connections of the clients. Their own Close would take the HTTP
// client away from a list that goes on after its context, which then panics.
func (c *Cloud) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Account is the project.
func (c *Cloud) Account() string { return Type + "/" + c.cfg.Project }

// MaxInstances is gcp.maxInstances.
func (c *Cloud) MaxInstances() int { return c.cfg.MaxInstances }
